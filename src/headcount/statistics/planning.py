"""Power analysis: the seeds that a study needs to detect a difference."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from headcount.statistics.comparison import ERROR, NORMAL_DF, Comparison, compare, quantile

POWER = 0.8  # the probability of detecting an effect
SURE = 1.96  # standard errors to each end of a 95 % interval
STUDIES = 200  # that are simulated
MOST = 1000  # seeds a row; above that, no number is enough
# Degrees of freedom between which critical values are interpolated.
TABLE = (2.0, 3.0, 4.0, 6.0, 9.0, 14.0, 24.0, 60.0, NORMAL_DF)


@dataclass(frozen=True)
class PowerAnalysis:
    """The variances that decide the power of a comparison of all pairs of rows, if all rows vary alike.

    variance: between seeds. noise: the part of it that is due to the draw of sentences. sentences: the variance that
    the draw of sentences adds with any number of seeds, estimated with `sentences_df` degrees of freedom. rows: the
    number of rows. blocks: whether each seed has a corpus of its own, whose effect on all rows is estimated too.
    """

    variance: float
    sentences: float
    sentences_df: float
    rows: int
    noise: float = 0.0
    blocks: bool = False

    @property
    def sampling_explains_all(self) -> bool:
        """Whether the draw of sentences explains all of the spread between runs of a row."""
        return 0 < self.variance <= self.noise

    def power(self, effect: float, seeds: int) -> float:
        """The probability of detecting a true difference of `effect` with `seeds` (2 or more) a row: noncentral t."""
        between = 2 * self.variance / seeds
        total = between + self.sentences
        if total == 0:
            return 1.0
        spread = between**2 / ((self.rows - self.blocks) * (seeds - 1)) + self.sentences**2 / self.sentences_df
        df = min(total**2 / spread, NORMAL_DF)
        return float(stats.nct.sf(_critical(self.rows, df) / math.sqrt(2), df, effect / math.sqrt(total)))

    def seeds_needed(self, effect: float) -> float:
        """The smallest number of seeds a row that detects `effect` with a power of 80 %; inf if no number does."""
        found = bisect_left(range(2, MOST + 1), True, key=lambda seeds: self.power(effect, seeds) >= POWER) + 2
        return found if found <= MOST else math.inf


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


def plans(comparison: Comparison) -> tuple[PowerAnalysis, PowerAnalysis, PowerAnalysis] | None:
    """Plans with the variances as estimated, and at the lower and at the upper ends of their 95 % intervals.

    None with one seed a row, which gives no variance between seeds.
    """
    spread, sampling = comparison.spread, comparison.interaction
    if spread is None:
        return None
    typical, error, noise = (*sampling.typical, sampling.noise) if sampling else (0.0, 0.0, 0.0)
    df = sampling.df if sampling else NORMAL_DF
    blocks = comparison.whole is not spread
    drafts = []
    low, high = (spread.total_df / float(stats.chi2.ppf(end, spread.total_df)) for end in (1 - ERROR / 2, ERROR / 2))
    for factor, errors in ((1.0, 0.0), (low, -SURE), (high, SURE)):
        seeds = max(spread.pooled * factor, noise)
        drafts.append(
            PowerAnalysis(seeds, max(typical + errors * error, 0.0), df, len(comparison.means), noise, blocks)
        )
    return drafts[0], drafts[1], drafts[2]


def percent(values: Sequence[float]) -> str:
    """Percent, with the interval of Wilson 1927. For a mean of shares, a study is one trial, which is conservative."""
    n, share, z = len(values), float(np.mean(values)), 1.96
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return f"{100 * share:.1f} [{100 * max(middle - half, 0):.1f}, {100 * min(middle + half, 1):.1f}]"


def _critical(rows: int, df: float) -> float:
    """Critical value of the studentised range, interpolated: it is nearly linear in 1 / df."""
    at = np.array([1 / known for known in reversed(TABLE)])
    return float(np.interp(1 / df, at, [quantile(rows, known, ERROR) for known in reversed(TABLE)]))
