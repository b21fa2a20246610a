"""Measures of a study: figures that every run has, by split, and the rows compared by each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from headcount.evaluation.metrics import METRICS, PRIMARY
from headcount.report.study import Study
from headcount.statistics.bootstrap import Floats, bleu_of
from headcount.statistics.comparison import Comparison

Scores = Sequence[Sequence[float]]
GROUPS = 4  # of sentences by length


@dataclass(frozen=True)
class Measure:
    """A figure of every run. scores: by row and run. higher: whether more is better; None for neither. within: rows
    that differ by less are equal; None if no margin is set."""

    name: str
    scores: Scores
    comparison: Comparison
    higher: bool | None = True
    within: float | None = None

    def table(self, study: Study, **more: Any) -> pd.DataFrame:
        """A line for each row: row, mean, low, high (95 % interval over seeds), runs as text, measure; and `more`."""
        compared = self.comparison
        halves = [compared.half_width(row) or 0.0 for row in range(len(compared.means))]
        means, half = np.array(compared.means), np.array(halves)
        runs = [" ".join(f"{value:.5g}" for value in row) for row in self.scores]
        columns = {"row": study.labels, "mean": means, "low": means - half, "high": means + half, "runs": runs}
        return pd.DataFrame({**columns, "measure": self.name, **more})


def measures(study: Study) -> list[Measure]:
    """The primary endpoint, then metrics and losses of each split, then lengths of translations and of sentences."""
    endpoint, margins = study.endpoint, study.margins
    found = [Measure(endpoint.name, endpoint.scores, endpoint.comparison, True, margins.bleu)]
    for split in study.sweep.runs[0].metrics:
        for key, metric in METRICS.items():
            if scores := _of_all(study, f"{split}.{key}"):
                within = margins.bleu if key == PRIMARY else None
                name, higher = f"{split} {metric.label}", metric.higher_is_better
                found.append(Measure(name, scores, study.compare(scores, percent=True), higher, within))
        if losses := _of_all(study, f"{split}.loss"):
            margin = margins.loss if split == "valid" else None
            name = f"{'validation' if split == 'valid' else split} loss, nats"
            found.append(Measure(name, losses, study.compare_losses(losses), False, margin))
    if endpoint.counts:
        sums = [[run.sum(axis=0) for run in row] for row in endpoint.counts]
        ratios = [[float(run[-2] / run[-1]) for run in row] for row in sums]
        penalties = [[brevity_penalty(run[-2], run[-1]) for run in row] for row in sums]
        found.append(Measure("length ratio", ratios, study.compare(ratios), None))
        found.append(Measure("brevity penalty", penalties, study.compare(penalties)))
        found += [
            Measure(f"BLEU, {name} tokens", each, study.compare(each, percent=True), None)
            for name, each in by_length(endpoint.counts).items()
        ]
    unique: dict[str, Measure] = {}
    for measure in found:  # the endpoint may be that of a split
        unique.setdefault(measure.name, measure)
    return list(unique.values())


def brevity_penalty(length: float, reference: float) -> float:
    """The factor of BLEU for translations that are too short (Papineni et al. 2002)."""
    return float(np.exp(min(0.0, 1 - reference / length))) if length else 0.0


def by_length(rows: Sequence[Sequence[Floats]]) -> dict[str, Scores]:
    """BLEU by row and run of about equally many sentences, by the tokens of their references, the shortest first (after
    Bahdanau et al. 2015, Figure 2). Without groups in which a run has no sentence; none if fewer than two are left.

    rows: of each row the `sentence_counts` of its runs, which may be on corpora of their own.
    """
    lengths = np.concatenate([run[:, -1] for row in rows for run in row])
    bounds = np.unique(np.quantile(lengths, np.linspace(0, 1, GROUPS + 1)[1:], method="inverted_cdf"))
    groups: dict[str, Scores] = {}
    longest = -np.inf
    for bound in bounds:
        chosen = [[run[(run[:, -1] > longest) & (run[:, -1] <= bound)] for run in row] for row in rows]
        shortest, longest = int(lengths[lengths > longest].min()), bound
        if all(len(run) for row in chosen for run in row):
            name = f"{shortest} to {bound:g}" if shortest < bound else f"{bound:g}"
            groups[name] = [[float(bleu_of(run.sum(axis=0))) for run in row] for row in chosen]
    return groups if len(groups) > 1 else {}


def _of_all(study: Study, path: str) -> Scores:
    """The figure at a path by row and run; empty if a run lacks it."""
    scores = [row.figures(path) for row in study.rows]
    return scores if study.whole(scores) else []
