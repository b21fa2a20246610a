"""Simultaneous comparison of all pairs of rows, with seeds and test sentences as random effects.

Every run has its own seed, and all runs are scored on the same sample of sentences. The model for the score of run s of
row i is

    Y_is = mu_i + a_is + b + c_i + e_is

a: effect of the seed. b: effect of the sentences that is the same for all rows; it cancels in differences. c: effect of
the sentences on one row. e: effect of the sentences on one run. So for two rows with S_i and S_j runs

    Var(mean_i - mean_j) = var_a,i / S_i + var_a,j / S_j + var_e (1/S_i + 1/S_j) + var_c,ij

with var_c,ij the variance of c_i - c_j. The variance between the runs of a row estimates var_a,i + var_e, and may
differ between rows (variances.py). The bootstrap over sentences estimates var_e (1/S_i + 1/S_j) + var_c,ij, and from
contrasts within rows var_e; the difference of both gives var_c,ij.

If the runs of a seed share a corpus of their own, with sentences of its own, a block, then

    Y_ik = mu_i + b_k + a_ik

b: effect of the corpus and its sentences that is the same for all rows; it cancels in differences. a: effect of the
seed, of the corpus on one row, and of the sentences on one run. The variance of a difference is that of the differences
within corpora, so intervals hold for other corpora of the kind.
"""

import bisect
import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from headcount.statistics.bootstrap import Floats
from headcount.statistics.variances import Spread, moderated, moderated_pairs

Verdict = Literal["differ", "equal", "inconclusive"]

ERROR = 0.05  # 1 - coverage of intervals, and the probability of a false alarm anywhere in a family
NORMAL_DF = 1e4  # degrees of freedom at which t is as good as normal
TABLE = (*map(float, range(1, 21)), 24.0, 30.0, 40.0, 60.0, 120.0, NORMAL_DF)


@dataclass(frozen=True)
class Interaction:
    """Variance of differences between rows due to the draw of sentences, from a bootstrap.

    variance: var_c,ij, [row, row]. noise: var_e. imprecision: half the variance of the estimate
    `variance`, [row, row]. df: degrees of freedom of the bootstrap. typical: the mean of var_c,ij over pairs, which is
    more precise than a single one, and an upper bound of its standard error.
    """

    variance: Floats
    noise: float
    imprecision: Floats
    df: float
    typical: tuple[float, float]


def interaction(resampled: Floats, rows: Sequence[int], sentences: int) -> Interaction:
    """From bootstrapped scores [resample, run]. rows: the row of each run (0, 1, ...; at least one run each)."""
    row_of = np.array(rows)
    covariance = np.atleast_2d(np.cov(resampled, rowvar=False))
    members = [np.flatnonzero(row_of == row) for row in range(row_of.max() + 1)]
    mean = np.stack([np.isin(np.arange(len(row_of)), runs) / len(runs) for runs in members])  # [row, run]
    within = sum(
        covariance[np.ix_(runs, runs)].trace() - covariance[np.ix_(runs, runs)].sum() / len(runs) for runs in members
    )
    noise = float(within) / max(sum(len(runs) - 1 for runs in members), 1)
    between = mean @ covariance @ mean.T
    observed = between.diagonal()[:, None] + between.diagonal() - 2 * between
    counts = np.array([len(runs) for runs in members])
    of_runs = noise * (1 / counts[:, None] + 1 / counts)
    df = 1 / (1 / max(sentences - 1, 1) + 1 / max(len(resampled) - 1, 1))
    imprecision = (observed**2 + of_runs**2) / df
    pairs = np.triu_indices(len(members), 1)
    known = (observed - of_runs)[pairs], np.sqrt(2 * imprecision)[pairs]
    typical = (max(float(known[0].mean()), 0.0), float(known[1].mean())) if len(members) > 1 else (0.0, 0.0)
    return Interaction(np.maximum(observed - of_runs, 0), noise, imprecision, df, typical)


def sentence_variance(corpora: Iterable[Floats]) -> float:
    """What the draw of each corpus's sentences adds to the variance of a run, its effect on all rows apart: half the
    variance of a difference of two rows, mean over pairs of rows and over corpora; 0 without corpora.

    corpora: of each, bootstrapped scores [resample, row] of two rows or more.
    """
    pairs = [interaction(scores, range(scores.shape[1]), 0).typical[0] for scores in corpora]
    return float(np.mean(pairs)) / 2 if pairs else 0.0


@dataclass(frozen=True)
class Difference:
    """The mean of the first row minus that of the second, with an interval that holds for all pairs at once.

    first, second: indices of the rows. value: in BLEU, nats or points. seeds, sentences: the parts of its variance; df:
    the degrees of freedom of their sum. rows: the number of rows compared. error: of the family of all their pairs.
    alike: whether the rows share one variance. bounds: the smallest and the largest possible difference.
    """

    first: int
    second: int
    value: float
    seeds: float
    sentences: float
    df: float
    rows: int
    error: float = ERROR
    alike: bool = True
    bounds: tuple[float, float] = (-math.inf, math.inf)

    @property
    def deviation(self) -> float:
        """The standard error of the difference."""
        return math.sqrt(self.seeds + self.sentences)

    @property
    def half_width(self) -> float:
        """Half the simultaneous interval: see `critical`."""
        return critical(self.rows, self.df, self.error, self.alike) * self.deviation / math.sqrt(2)

    @property
    def interval(self) -> tuple[float, float]:
        low, high = self.bounds
        return max(self.value - self.half_width, low), min(self.value + self.half_width, high)

    @property
    def differs(self) -> bool:
        """Whether the interval excludes 0, which is the same as p < error."""
        return abs(self.value) > self.half_width

    @functools.cached_property
    def p(self) -> float:
        """The p-value corrected for all pairs of rows, by the studentised range or, if variances are unequal,
        Bonferroni's bound, whichever is larger; and for all comparisons that share the family's error."""
        return self._corrected(abs(self.value))

    def equal(self, within: float) -> bool:
        """Whether the true difference is within ± `within`, which is the same as `p_equal` < 5 %.

        Two one-sided tests (Schuirmann 1987): the simultaneous interval with twice the error lies inside the margin.
        """
        room = (within - abs(self.value)) * math.sqrt(2)
        return room > 0 and room > critical(self.rows, self.df, 2 * self.error, self.alike) * self.deviation

    def p_equal(self, within: float) -> float:
        """The p-value of the two one-sided tests, corrected as `p` is; 1 if the observed difference is not smaller."""
        room = within - abs(self.value)
        return self._corrected(room) / 2 if room > 0 else 1.0

    def verdict(self, within: float) -> Verdict:
        """Rows that differ by less than the margin still differ."""
        return "differ" if self.differs else "equal" if self.equal(within) else "inconclusive"

    def _corrected(self, distance: float) -> float:
        if self.deviation == 0:
            return float(distance == 0)
        ratio, df = distance / self.deviation, tabulated(self.df)
        p = float(stats.studentized_range.sf(ratio * math.sqrt(2), self.rows, df))
        if not self.alike:
            p = max(p, 2 * (self.rows - 1) * float(stats.t.sf(ratio, df)))
        return min(p * ERROR / self.error, 1.0)


@dataclass(frozen=True)
class Comparison:
    """All rows and all pairs of them. spread: between the seeds of a row, without the effect of a corpus on all rows;
    None if every row has one seed. whole: with that effect."""

    means: tuple[float, ...]
    counts: tuple[int, ...]
    spread: Spread | None
    differences: tuple[Difference, ...]
    interaction: Interaction | None
    whole: Spread | None

    def half_width(self, row: int) -> float | None:
        """Half the 95 % interval of a row's mean over seeds (Student's t), on these sentences, or over corpora; None if
        unknown."""
        if self.whole is None:
            return None
        variance = self.whole.variances[row] / self.counts[row]
        return float(stats.t.ppf(1 - ERROR / 2, tabulated(self.whole.df[row]))) * math.sqrt(variance)


def compare(
    scores: Sequence[Sequence[float]],
    sampling: Interaction | None = None,
    error: float = ERROR,
    least: Sequence[float] | None = None,
    percent: bool = False,
    blocks: bool = False,
) -> Comparison:
    """Compare every pair of rows, with simultaneous intervals. scores: of the runs of each row (at least one).

    sampling: without it, the intervals ignore the choice of test sentences. With one seed in every row they ignore the
    spread between seeds; then, and without `sampling`, nothing is compared. least: by row, a lower bound for the
    variance between seeds; by default `sampling.noise`, which is part of it. percent: whether scores lie
    between 0 and 100, so that no difference is larger.
    blocks: whether the runs in the same place of each row share a corpus of their own; rows of unequal size are then
    compared as without it, with the effect of the corpus as part of that of the seed.

    Tukey 1953; Kramer 1956 for rows of unequal size; Games and Howell 1976 for unequal variances. Degrees of freedom
    are those of Satterthwaite 1946, but if a variance between seeds has fewer than all seeds together, its part of the
    sum counts by its share, not by the square of that.
    """
    means = tuple(float(np.mean(row)) for row in scores)
    counts = tuple(len(row) for row in scores)
    floor = [sampling.noise if sampling else 0.0] * len(scores) if least is None else least
    blocks = blocks and len(scores) > 1 and len(set(counts)) == 1
    whole = moderated(scores, floor)
    spread = moderated_pairs(scores, floor) if blocks else whole
    differences = []
    for i, j in itertools.combinations(range(len(scores)), 2):
        if not spread and not sampling:
            continue
        seeds, seeds_df = spread.of_difference(i, j) if spread else (0.0, math.inf)
        sentences = float(sampling.variance[i, j]) if sampling else 0.0
        # Few seeds may agree by luck: the square of a variance that is too small makes the sum look too precise.
        few = spread is not None and seeds_df < spread.total_df
        weight = seeds + sentences if few else seeds
        imprecision = seeds * weight / seeds_df + (float(sampling.imprecision[i, j]) if sampling else 0.0)
        df = max((seeds + sentences) ** 2 / imprecision, 1.0) if imprecision else math.inf
        value = means[i] - means[j]
        alike, bounds = spread is None or spread.alike, (-100.0, 100.0) if percent else (-math.inf, math.inf)
        differences.append(Difference(i, j, value, seeds, sentences, df, len(scores), error, alike, bounds))
    return Comparison(means, counts, spread, tuple(differences), sampling, whole)


def tabulated(df: float) -> float:
    """Degrees of freedom rounded down to those of printed tables, which is conservative."""
    return TABLE[max(bisect.bisect_right(TABLE, df) - 1, 0)]


def critical(rows: int, df: float, error: float = ERROR, alike: bool = True) -> float:
    """Critical value of the studentised range for `rows` rows: exceeded with probability `error`.

    Rows with unequal variances have no common deviation to studentise by. The pairs of a row that varies much more than
    the others all depend on its own deviation, which has few degrees of freedom, and any row may be that one. So
    Bonferroni's bound over the other rows is used if it is larger.
    """
    df = tabulated(df)
    return quantile(rows, df, error) if alike else max(quantile(rows, df, error), _by_row(rows, df, error))


@functools.cache
def _by_row(rows: int, df: float, error: float) -> float:
    return float(stats.t.ppf(1 - error / (2 * (rows - 1)), df)) * math.sqrt(2)


@functools.cache
def quantile(rows: int, df: float, error: float) -> float:
    """`critical` for equal variances at exactly these degrees of freedom; takes a quarter second, once."""
    if rows == 2:
        return float(stats.t.ppf(1 - error / 2, df)) * math.sqrt(2)
    return float(stats.studentized_range.ppf(1 - error, rows, df))
