"""Power analysis: the differences that a study detects."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from headcount.statistics.comparison import Comparison, compare

POWER = 0.8  # the probability of detecting an effect
STUDIES = 200  # that are simulated


def like(comparison: Comparison, studies: int) -> Iterator[Comparison]:
    """Simulated studies with the deviations of this one, in which no row differs."""
    sampling, draw, rows = comparison.interaction, np.random.default_rng(0), len(comparison.counts)
    deviations = [math.sqrt(variance) for variance in comparison.spread.variances] if comparison.spread else []
    centre = np.eye(rows) - 1 / rows
    of_rows = centre @ (sampling.variance if sampling else np.zeros((rows, rows))) @ centre / -2  # covariances
    values, vectors = np.linalg.eigh(of_rows)
    root = vectors * np.sqrt(np.maximum(values, 0))
    for _ in range(studies):
        scores, shifts = [], []
        for deviation, count in zip(deviations, comparison.counts, strict=True):
            scores.append(deviation * draw.standard_normal(count))
            shifts.append(draw.standard_normal())
        moved = [(run + shift).tolist() for run, shift in zip(scores, root @ shifts, strict=True)]
        yield compare(moved, sampling, blocks=comparison.whole is not comparison.spread)


def detectable(comparison: Comparison) -> tuple[float, ...]:
    """For each pair of rows, the smallest difference that studies like this one find with a power of 80 %; empty if a
    row has one seed."""
    if min(comparison.counts) < 2:
        return ()
    missing = [[pair.half_width - pair.value for pair in study.differences] for study in like(comparison, STUDIES)]
    return tuple(np.quantile(missing, POWER, axis=0).tolist())


def percent(values: Sequence[float]) -> str:
    """Percent, with the interval of Wilson 1927. For a mean of shares, a study is one trial, which is conservative."""
    n, share, z = len(values), float(np.mean(values)), 1.96
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return f"{100 * share:.1f} [{100 * max(middle - half, 0):.1f}, {100 * min(middle + half, 1):.1f}]"
