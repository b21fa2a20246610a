"""Which rows of a study differ, when every run has a seed of its own and all are scored on one sample of sentences.

The score of run s of row i on a test set of n sentences is taken to be

    Y_is = mu_i + a_is + b + c_i + e_is

with a: what the seed does (a new one each run); b: what the draw of sentences does to all rows alike, which drops out
of differences; c: what it does to one row (some sentences suit it); e: what it does to one run alone. Of two rows,

    Var(mean_i - mean_j) = (var_a + var_e) (1/S_i + 1/S_j) + var_c

The spread of runs within rows estimates var_a + var_e, where a, and so var_a, may be another in each row: see
variances.py. The bootstrap over sentences sees var_e (1/S_i + 1/S_j) + var_c, and on contrasts within rows var_e alone,
so that var_c is what is left.
"""

import bisect
import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from headcount.report.statistics.bootstrap import Floats
from headcount.report.statistics.variances import Spread, moderated

Verdict = Literal["differ", "equal", "undecided"]

ERROR = 0.05  # what intervals leave out, and the chance of a false alarm anywhere in a family
NORMAL_DF = 1e4  # degrees of freedom that make no difference any more
TABLE = (*map(float, range(1, 21)), 24.0, 30.0, 40.0, 60.0, 120.0, NORMAL_DF)


@dataclass(frozen=True)
class Interaction:
    """What the draw of sentences does to differences between rows, by bootstrap.

    variance: of the mean of rows i and j, [row, row], the noise of single runs taken out (var_c). noise: var_e.
    imprecision: half the variance of that estimate, [row, row]. df: of the bootstrap, a sample of sentences and of
    resamples. typical: the mean of var_c over pairs, better known than each, and its standard error at most.
    """

    variance: Floats
    noise: float
    imprecision: Floats
    df: float
    typical: tuple[float, float]


def interaction(resampled: Floats, rows: Sequence[int], sentences: int) -> Interaction:
    """From bootstrapped scores [resample, run] of runs in the given rows (0, 1, ...; each has one at least)."""
    row_of = np.array(rows)
    covariance = np.atleast_2d(np.cov(resampled, rowvar=False))
    members = [np.flatnonzero(row_of == row) for row in range(row_of.max() + 1)]
    mean = np.stack([np.isin(np.arange(len(row_of)), own) / len(own) for own in members])  # [row, run]
    within = sum(
        covariance[np.ix_(own, own)].trace() - covariance[np.ix_(own, own)].sum() / len(own) for own in members
    )
    noise = float(within) / max(sum(len(own) - 1 for own in members), 1)
    between = mean @ covariance @ mean.T
    seen = between.diagonal()[:, None] + between.diagonal() - 2 * between
    counts = np.array([len(own) for own in members])
    own_noise = noise * (1 / counts[:, None] + 1 / counts)
    df = 1 / (1 / max(sentences - 1, 1) + 1 / max(len(resampled) - 1, 1))
    imprecision = (seen**2 + own_noise**2) / df
    pairs = np.triu_indices(len(members), 1)
    known = (seen - own_noise)[pairs], np.sqrt(2 * imprecision)[pairs]
    typical = (max(float(known[0].mean()), 0.0), float(known[1].mean())) if len(members) > 1 else (0.0, 0.0)
    return Interaction(np.maximum(seen - own_noise, 0), noise, imprecision, df, typical)


@dataclass(frozen=True)
class Difference:
    """The first row's mean less the second's, with an interval that holds for all pairs at once.

    seeds, sentences: the parts of its variance. rows: how many were compared. alike: whether they share one variance.
    bounds: the least and the largest value that a difference of such scores can have.
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
    def margin(self) -> float:
        """Half the simultaneous interval (Tukey-Kramer, Games-Howell where rows vary unlike)."""
        return critical(self.rows, self.df, self.error, self.alike) * self.deviation / math.sqrt(2)

    @property
    def interval(self) -> tuple[float, float]:
        low, high = self.bounds
        return max(self.value - self.margin, low), min(self.value + self.margin, high)

    @property
    def differs(self) -> bool:
        """Whether the interval leaves out 0, which is whether p is below the error."""
        return abs(self.value) > self.margin

    @functools.cached_property
    def p(self) -> float:
        """Corrected over all pairs of rows, by the studentised range or, where rows vary unlike, Bonferroni's bound,
        whichever is larger; and over whatever shares the family's error."""
        return self._corrected(abs(self.value))

    def equal(self, within: float) -> bool:
        """Whether the true difference is smaller than `within`, either way, which is whether `p_equal` is below 5 %.

        Two one-sided tests (Schuirmann 1987): the simultaneous interval with twice the error lies inside the margin.
        """
        room = (within - abs(self.value)) * math.sqrt(2)
        return room > 0 and room > critical(self.rows, self.df, 2 * self.error, self.alike) * self.deviation

    def p_equal(self, within: float) -> float:
        """Of the two one-sided tests, corrected as `p` is; 1 where the difference that was seen is not smaller."""
        room = within - abs(self.value)
        return self._corrected(room) / 2 if room > 0 else 1.0

    def verdict(self, within: float) -> Verdict:
        """What is known of the pair. Rows may differ by less than the margin; then they differ."""
        return "differ" if self.differs else "equal" if self.equal(within) else "undecided"

    def _corrected(self, distance: float) -> float:
        if self.deviation == 0:
            return float(distance == 0)
        ratio, df = distance / self.deviation, tabulated(self.df)
        own = float(stats.studentized_range.sf(ratio * math.sqrt(2), self.rows, df))
        if not self.alike:
            own = max(own, 2 * (self.rows - 1) * float(stats.t.sf(ratio, df)))
        return min(own * ERROR / self.error, 1.0)


@dataclass(frozen=True)
class Comparison:
    """All rows and all pairs of them. spread: between the seeds of rows; None where every row has a single one."""

    means: tuple[float, ...]
    counts: tuple[int, ...]
    spread: Spread | None
    differences: tuple[Difference, ...]
    interaction: Interaction | None

    def margin(self, row: int) -> float | None:
        """Half the 95 % interval of a row's mean over seeds, on these very sentences: Student's t. None with one seed a
        row, from which nothing follows about seeds."""
        if self.spread is None:
            return None
        variance = self.spread.variances[row] / self.counts[row]
        return float(stats.t.ppf(1 - ERROR / 2, tabulated(self.spread.df[row]))) * math.sqrt(variance)


def compare(
    scores: Sequence[Sequence[float]],
    sampling: Interaction | None = None,
    error: float = ERROR,
    least: Sequence[float] | None = None,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Comparison:
    """Every pair of rows, each given as the scores of its runs (one at least), with simultaneous intervals.

    Without `sampling`, differences are those on this very test set. With one seed in every row, they are those of these
    very runs: only the draw of sentences is accounted for, and without that nothing is compared. least: by row, what
    the variance between seeds is taken to be if it comes out smaller; unless given, what the draw of sentences does to
    a single run, which is part of it. bounds: of a difference.
    Source: Tukey 1953; Kramer 1956, for rows of unequal size; Games and Howell 1976, for unequal variances;
    Satterthwaite 1946, for the degrees of freedom.
    """
    means = tuple(float(np.mean(row)) for row in scores)
    counts = tuple(len(row) for row in scores)
    floor = [sampling.noise if sampling else 0.0] * len(scores) if least is None else least
    spread = moderated(scores, floor)
    differences = []
    for i, j in itertools.combinations(range(len(scores)), 2):
        if not spread and not sampling:
            continue
        seeds, seeds_df = spread.of_difference(i, j) if spread else (0.0, math.inf)
        sentences = float(sampling.variance[i, j]) if sampling else 0.0
        imprecision = seeds**2 / seeds_df + (float(sampling.imprecision[i, j]) if sampling else 0.0)
        df = max((seeds + sentences) ** 2 / imprecision, 1.0) if imprecision else math.inf
        value = means[i] - means[j]
        alike = spread is None or spread.alike
        differences.append(Difference(i, j, value, seeds, sentences, df, len(scores), error, alike, bounds))
    return Comparison(means, counts, spread, tuple(differences), sampling)


def tabulated(df: float) -> float:
    """Degrees of freedom as printed tables have them, rounded down, which is the safe side."""
    return TABLE[max(bisect.bisect_right(TABLE, df) - 1, 0)]


def critical(rows: int, df: float, error: float = ERROR, alike: bool = True) -> float:
    """The studentised range of so many rows that is passed with the probability `error`.

    Rows that do not vary alike have no common deviation to studentise by. A row that varies much more than the others
    then decides all its pairs by a deviation of its own, known to few degrees of freedom, and each row may be that one:
    Bonferroni over all rows but one is the larger of the two there, at few degrees of freedom.
    """
    df = tabulated(df)
    return quantile(rows, df, error) if alike else max(quantile(rows, df, error), _by_row(rows, df, error))


@functools.cache
def _by_row(rows: int, df: float, error: float) -> float:
    return float(stats.t.ppf(1 - error / (2 * (rows - 1)), df)) * math.sqrt(2)


@functools.cache
def quantile(rows: int, df: float, error: float) -> float:
    """`critical` at exactly these degrees of freedom; takes a quarter second, once."""
    if rows == 2:
        return float(stats.t.ppf(1 - error / 2, df)) * math.sqrt(2)
    return float(stats.studentized_range.ppf(1 - error, rows, df))
