"""Contrasts that were named before the runs, by Holm's method; and all pairs by one variance, the standard method."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from headcount.statistics.bootstrap import Floats
from headcount.statistics.comparison import ERROR, Comparison, Difference


@dataclass(frozen=True)
class Contrast:
    """A difference of two rows. interval: 95 %, for all contrasts at once (Bonferroni). p: among them (Holm 1979)."""

    name: str
    first: int
    second: int
    value: float
    interval: tuple[float, float]
    p: float


def holm(p: ArrayLike) -> Floats:
    """Adjusted p-values of a family of tests (Holm 1979): a test rejects where its own is at most the error."""
    values = np.asarray(p, dtype=np.float64)
    order, adjusted = np.argsort(values, kind="stable"), np.empty(len(values))
    adjusted[order] = np.maximum.accumulate(values[order] * (len(values) - np.arange(len(values))))
    return np.minimum(adjusted, 1)


def planned(comparison: Comparison, named: Mapping[str, tuple[int, int]]) -> list[Contrast]:
    """The contrasts of rows by name, the first row less the second; no other pair is in their family."""
    pairs = {(each.first, each.second): replace(each, rows=2) for each in comparison.differences}
    found = []
    for name, (first, second) in named.items():
        pair, sign = pairs[min(first, second), max(first, second)], 1 if first < second else -1
        ends = replace(pair, error=ERROR / len(named)).interval
        low, high = sorted(sign * end for end in ends)
        found.append(Contrast(name, first, second, sign * pair.value, (low, high), pair.p))
    adjusted = holm([each.p for each in found])
    return [replace(each, p=float(p)) for each, p in zip(found, adjusted, strict=True)]


def by_one_variance(comparison: Comparison) -> Comparison:
    """The same pairs by the standard method: one variance between seeds for all rows, one of sentences for all pairs,
    degrees of freedom by Satterthwaite 1946, Tukey's studentised range.

    On a corpus for each seed that is a two-way analysis of variance, of rows and corpora.
    """
    spread, sampling = comparison.spread, comparison.interaction
    if spread is None:
        return comparison
    sentences, error = sampling.typical if sampling else (0.0, 0.0)

    def pooled(pair: Difference) -> Difference:
        seeds = spread.pooled * sum(1 / comparison.counts[row] for row in (pair.first, pair.second))
        imprecision = seeds**2 / spread.total_df + error**2 / 2
        df = (seeds + sentences) ** 2 / imprecision if imprecision else math.inf
        return replace(pair, seeds=seeds, sentences=sentences, df=df, alike=True)

    return replace(comparison, differences=tuple(map(pooled, comparison.differences)))
