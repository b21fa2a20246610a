"""Which rows of a study differ, when every run has a seed of its own and all are scored on one sample of sentences.

The score of run s of row i on a test set of n sentences is taken to be

    Y_is = mu_i + a_is + b + c_i + e_is

with a: what the seed does (a new one each run); b: what the draw of sentences does to all rows alike, which drops out
of differences; c: what it does to one row (some sentences suit it); e: what it does to one run alone. Of two rows,

    Var(mean_i - mean_j) = (var_a + var_e) (1/S_i + 1/S_j) + var_c

The spread of runs within rows, pooled over rows, estimates var_a + var_e. The bootstrap over sentences sees
var_e (1/S_i + 1/S_j) + var_c, and on contrasts within rows var_e alone, so that var_c is what is left.
"""

import bisect
import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from headcount.report.sentences import Floats

ERROR = 0.05  # what intervals leave out, and the chance of a false alarm anywhere in a family
SURE = 1.645  # standard errors to a bound that holds with 95 %
POWER = 0.8  # the chance to see an effect with the seeds that are said to be needed
MOST_SEEDS = 1000  # a row; more are said to be no number that would do
NORMAL_DF = 1e4  # degrees of freedom that make no difference any more
UNEQUAL = 0.01  # p-value below which seed deviations are said to differ
TABLE = (*map(float, range(1, 21)), 24.0, 30.0, 40.0, 60.0, 120.0, NORMAL_DF)
PLANNED = (2.0, 3.0, 4.0, 6.0, 9.0, 14.0, 24.0, 60.0, NORMAL_DF)  # those of the table that plans look up


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

    seeds, sentences: the parts of its variance. rows: how many were compared.
    """

    first: int
    second: int
    value: float
    seeds: float
    sentences: float
    df: float
    rows: int
    error: float = ERROR

    @property
    def deviation(self) -> float:
        """The standard error of the difference."""
        return math.sqrt(self.seeds + self.sentences)

    @property
    def margin(self) -> float:
        """Half the simultaneous interval (Tukey-Kramer)."""
        return critical(self.rows, self.df, self.error) * self.deviation / math.sqrt(2)

    @property
    def interval(self) -> tuple[float, float]:
        return self.value - self.margin, self.value + self.margin

    @property
    def differs(self) -> bool:
        """Whether the interval leaves out 0, which is whether p is below the error."""
        return abs(self.value) > self.margin

    @functools.cached_property
    def p(self) -> float:
        """Corrected over all pairs of rows, by the studentised range, and over whatever shares the family's error."""
        if self.deviation == 0:
            return float(self.value == 0)
        ratio = abs(self.value) / self.deviation * math.sqrt(2)
        own = float(stats.studentized_range.sf(ratio, self.rows, tabulated(self.df)))
        return min(own * ERROR / self.error, 1.0)


@dataclass(frozen=True)
class Comparison:
    """All rows and all pairs of them.

    variance: between the seeds of a row, pooled over rows, on `df` degrees of freedom; NaN on none. unequal: the
    p-value of Bartlett's test that all rows vary alike, None where too few runs tell.
    """

    means: tuple[float, ...]
    counts: tuple[int, ...]
    variance: float
    df: int
    differences: tuple[Difference, ...]
    interaction: Interaction | None
    unequal: float | None

    def margin(self, row: int) -> float | None:
        """Half the 95 % interval of a row's mean over seeds, on this test set: Student's t with the variance pooled
        over all rows. None with one seed a row, which tell nothing of seeds."""
        if self.df == 0:
            return None
        return float(stats.t.ppf(1 - ERROR / 2, self.df)) * math.sqrt(self.variance / self.counts[row])

    def seeds_needed(self, effect: float) -> tuple[float, float] | None:
        """The seeds a row that see a difference of `effect` between two rows with 80 % power, all pairs being compared,
        and how many they are at least, should the draw of sentences matter less than it seems; inf where no number
        would do. None where one seed a row tells nothing."""
        if not self.df:
            return None
        typical, error = self.interaction.typical if self.interaction else (0.0, 0.0)
        least = max(typical - SURE * error, 0.0)
        return self._plan(typical).seeds_needed(effect), self._plan(least).seeds_needed(effect)

    def detectable(self, seeds: int) -> float:
        """The least difference that so many seeds a row would see, likewise."""
        return self._plan(self.interaction.typical[0] if self.interaction else 0.0).detectable(seeds)

    def _plan(self, sentences: float) -> "Plan":
        sentences_df = self.interaction.df if self.interaction else NORMAL_DF
        return Plan(self.variance, sentences, sentences_df, len(self.means))


def compare(
    scores: Sequence[Sequence[float]], sampling: Interaction | None = None, error: float = ERROR, least: float = 0.0
) -> Comparison:
    """Every pair of rows, each given as the scores of its runs (one at least), with simultaneous intervals.

    Without `sampling`, differences are those on this very test set. With one seed in every row, they are those of these
    very runs: only the draw of sentences is accounted for, and without that nothing is compared. least: what the
    variance between seeds is taken to be if it comes out smaller.
    Source: Tukey 1953; Kramer 1956, for rows of unequal size; Satterthwaite 1946, for the degrees of freedom.
    """
    means = tuple(float(np.mean(row)) for row in scores)
    counts = tuple(len(row) for row in scores)
    df = sum(counts) - len(counts)
    variance = max(sum(float(np.var(row)) * len(row) for row in scores) / df, least) if df else math.nan
    differences = []
    for i, j in itertools.combinations(range(len(scores)), 2):
        seeds = variance * (1 / counts[i] + 1 / counts[j]) if df else 0.0
        sentences = float(sampling.variance[i, j]) if sampling else 0.0
        if not df and not sampling:
            continue
        spread = (seeds**2 / df if df else 0.0) + (float(sampling.imprecision[i, j]) if sampling else 0.0)
        freedom = max((seeds + sentences) ** 2 / spread, 1.0) if spread else math.inf
        differences.append(Difference(i, j, means[i] - means[j], seeds, sentences, freedom, len(scores), error))
    return Comparison(means, counts, variance, df, tuple(differences), sampling, _unequal(scores))


def _unequal(scores: Sequence[Sequence[float]]) -> float | None:
    groups = [row for row in scores if len(row) > 1]
    if len(groups) < 2:
        return None
    variances = [float(np.var(row)) for row in groups]
    if min(variances) == 0:
        return 1.0 if max(variances) == 0 else 0.0
    return float(stats.bartlett(*groups).pvalue)


def tabulated(df: float) -> float:
    """Degrees of freedom as printed tables have them, rounded down, which is the safe side."""
    return TABLE[max(bisect.bisect_right(TABLE, df) - 1, 0)]


def critical(rows: int, df: float, error: float = ERROR) -> float:
    """The studentised range of so many rows that is passed with the probability `error`."""
    return _quantile(rows, tabulated(df), error)


@functools.cache
def _quantile(rows: int, df: float, error: float) -> float:
    if rows == 2:
        return float(stats.t.ppf(1 - error / 2, df)) * math.sqrt(2)
    return float(stats.studentized_range.ppf(1 - error, rows, df))


@dataclass(frozen=True)
class Plan:
    """What a pair of rows would need to be told apart, all pairs being compared.

    variance: between seeds. sentences: the variance that the draw of sentences adds, however many seeds, known to
    `sentences_df` degrees of freedom. rows: of the study.
    """

    variance: float
    sentences: float
    sentences_df: float
    rows: int

    def power(self, effect: float, seeds: int) -> float:
        """The chance to see a true difference of `effect` with so many seeds a row (2 or more): noncentral t."""
        own = 2 * self.variance / seeds
        total = own + self.sentences
        if total == 0:
            return 1.0
        spread = own**2 / (self.rows * (seeds - 1)) + self.sentences**2 / self.sentences_df
        df = min(total**2 / spread, NORMAL_DF)
        return float(stats.nct.sf(_planned(self.rows, df) / math.sqrt(2), df, effect / math.sqrt(total)))

    def seeds_needed(self, effect: float) -> float:
        """The least number of seeds a row that sees `effect` with a power of 80 %; inf where no number does."""
        if self.power(effect, MOST_SEEDS) < POWER:
            return math.inf
        low, high = 1, MOST_SEEDS  # the power of `high` is enough, that of `low` is not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.power(effect, middle) >= POWER else (middle, high)
        return high

    def detectable(self, seeds: int) -> float:
        """The least effect that so many seeds a row see with a power of 80 %."""
        low, high = 0.0, 1.0
        while self.power(high, seeds) < POWER:
            low, high = high, 2 * high
        for _ in range(12):
            middle = (low + high) / 2
            low, high = (low, middle) if self.power(middle, seeds) >= POWER else (middle, high)
        return high


def _planned(rows: int, df: float) -> float:
    """`critical` between a few degrees of freedom, nearly linear in 1 / df; each value takes a quarter second."""
    at = np.array([1 / known for known in reversed(PLANNED)])
    values = [_quantile(rows, known, ERROR) for known in reversed(PLANNED)]
    return float(np.interp(1 / df, at, values))
