"""Measures of a study: figures that every run has, by split, and the rows compared by each."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headcount.evaluation.metrics import METRICS, PRIMARY
from headcount.report.study import Study
from headcount.statistics.comparison import Comparison

Scores = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Measure:
    """A figure of every run. scores: by row and run. higher: whether more is better; None for neither. within: rows
    that differ by less are equal; None if no margin is set."""

    name: str
    scores: Scores
    comparison: Comparison
    higher: bool | None = True
    within: float | None = None


def measures(study: Study) -> list[Measure]:
    """The primary endpoint, then metrics and losses of each split, then what the lengths of translations cost."""
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
            found.append(Measure(loss_name(split), losses, study.compare_losses(losses), False, margin))
    if endpoint.counts:
        sums = [[run.sum(axis=0) for run in row] for row in endpoint.counts]
        found += [
            _plain(study, "length ratio", [[float(run[-2] / run[-1]) for run in row] for row in sums]),
            _plain(
                study, "brevity penalty", [[brevity_penalty(run[-2], run[-1]) for run in row] for row in sums], True
            ),
        ]
    unique: dict[str, Measure] = {}
    for measure in found:  # the endpoint may be that of a split
        unique.setdefault(measure.name, measure)
    return list(unique.values())


def loss_name(split: str) -> str:
    return f"{'validation' if split == 'valid' else split} loss, nats"


def brevity_penalty(length: float, reference: float) -> float:
    """The factor of BLEU for translations that are too short (Papineni et al. 2002)."""
    return float(np.exp(min(0.0, 1 - reference / length))) if length else 0.0


def _of_all(study: Study, path: str) -> Scores:
    """The figure at a path by row and run; empty if a run lacks it."""
    scores = [row.figures(path) for row in study.rows]
    return scores if study.whole(scores) else []


def _plain(study: Study, name: str, scores: Scores, higher: bool | None = None) -> Measure:
    return Measure(name, scores, study.compare(scores), higher)
