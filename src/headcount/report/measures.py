"""Measures of a study: figures that every run has, by split, and the rows compared by each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from headcount.evaluation.metrics import METRICS, PRIMARY
from headcount.report.endpoint import Scores
from headcount.report.study import Study
from headcount.report.verdicts import pair_verdict
from headcount.statistics.bootstrap import Floats, bleu_of
from headcount.statistics.comparison import Comparison

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


@cache
def measures(study: Study) -> list[Measure]:
    """The primary endpoint, then metrics and losses of each split, then lengths of translations and of sentences."""
    endpoint, margins = study.endpoint, study.margins
    found = [Measure(endpoint.name, endpoint.scores, endpoint.comparison, True, margins.bleu)]
    for split in study.sweep.runs[0].metrics:
        for key, metric in METRICS.items():
            if study.whole(scores := [row.figures(f"{split}.{key}") for row in study.rows]):
                within = margins.bleu if key == PRIMARY else None
                compared, higher = study.compare(scores, percent=True), metric.higher_is_better
                found.append(Measure(f"{split} {metric.label}", scores, compared, higher, within))
        if study.whole(losses := [row.figures(f"{split}.loss") for row in study.rows]):
            name, margin = ("validation", margins.loss) if split == "valid" else (split, None)
            found.append(Measure(f"{name} loss, nats", losses, study.compare_losses(losses), False, margin))
    if endpoint.counts:
        lengths = [[run.sum(axis=0)[-2:].tolist() for run in row] for row in endpoint.counts]
        ratios = [[length / reference for length, reference in row] for row in lengths]
        found.append(Measure("length ratio", ratios, study.compare(ratios), None))
        for name, each in by_length(endpoint.counts).items():
            found.append(Measure(f"BLEU, {name} tokens", each, study.compare(each, percent=True), None))
    return [found[0], *(each for each in found[1:] if each.name != endpoint.name)]  # which may be that of a split


def by_length(rows: Sequence[Sequence[Floats]]) -> Mapping[str, Scores]:
    """BLEU by row and run of about equally many sentences, by the tokens of their references, the shortest first (after
    Bahdanau et al. 2015, Figure 2). Without groups in which a run has no sentence; none if fewer than two are left.

    rows: of each row the `sentence_counts` of its runs, which may be on corpora of their own.
    """
    lengths = np.concatenate([run[:, -1] for row in rows for run in row])
    bounds = np.unique(np.quantile(lengths, np.linspace(0, 1, GROUPS + 1)[1:], method="inverted_cdf"))
    groups: dict[str, Scores] = {}
    for before, bound in zip([-np.inf, *bounds], bounds, strict=False):
        chosen = [[run[(run[:, -1] > before) & (run[:, -1] <= bound)] for run in row] for row in rows]
        shortest = int(lengths[lengths > before].min())
        if all(len(run) for row in chosen for run in row):
            name = f"{shortest} to {bound:g}" if shortest < bound else f"{bound:g}"
            groups[name] = [[float(bleu_of(run.sum(axis=0))) for run in row] for row in chosen]
    return groups if len(groups) > 1 else {}


def row_lines(study: Study) -> pd.DataFrame:
    """A line for each measure and row: measure, row, mean, low, high (95 % interval over seeds), runs as text."""
    found = []
    for measure in measures(study):
        for row, (label, mean) in enumerate(zip(study.labels, measure.comparison.means, strict=True)):
            half = measure.comparison.half_width(row) or 0.0
            runs = " ".join(f"{score:.5g}" for score in measure.scores[row])
            line = {"measure": measure.name, study.label: label, "mean": mean, "low": mean - half, "high": mean + half}
            found.append({**line, "runs": runs})
    return pd.DataFrame(found)


def pair_lines(study: Study) -> pd.DataFrame:
    """A line for each measure of which more or less is better, and pair of rows: measure, pair, difference, low, high,
    verdict, and the kind of verdict."""
    labels, found = study.labels, []
    for measure in measures(study):
        for each in measure.comparison.differences if measure.higher is not None else ():
            line = {"measure": measure.name, "pair": f"{labels[each.first]} − {labels[each.second]}"}
            ends = dict(zip(("low", "high"), each.interval, strict=True))
            verdict = pair_verdict(each, labels, measure.within, bool(measure.higher))
            kind = each.verdict(measure.within or 0.0)
            found.append({**line, "difference": each.value, **ends, "kind": kind, "verdict": verdict})
    return pd.DataFrame(found)
