"""What a study would need to see a difference: more seeds, or more sentences."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from headcount.report.statistics.comparison import ERROR, NORMAL_DF, Comparison, quantile

POWER = 0.8  # the chance to see an effect with the seeds that are said to be needed
SURE = 1.96  # standard errors to either end of a 95 % interval
MOST = 1000  # seeds a row, or times the sentences; more are said to be no number that would do
TABLE = (2.0, 3.0, 4.0, 6.0, 9.0, 14.0, 24.0, 60.0, NORMAL_DF)  # degrees of freedom that plans look up


@dataclass(frozen=True)
class Plan:
    """What a pair of rows would need to be distinguished, all pairs being compared and all rows varying alike.

    variance: between seeds. noise: the part of it that the draw of sentences makes. sentences: the variance that the
    draw of sentences adds, however many seeds, known to `sentences_df` degrees of freedom. rows: of the study.
    """

    variance: float
    sentences: float
    sentences_df: float
    rows: int
    noise: float = 0.0

    def with_sentences(self, times: float) -> "Plan":
        """The same with so many times the sentences."""
        seeds = max(self.variance - self.noise, 0)
        return replace(
            self,
            variance=seeds + self.noise / times,
            noise=self.noise / times,
            sentences=self.sentences / times,
            sentences_df=self.sentences_df * times,
        )

    @property
    def sampling_explains_all(self) -> bool:
        """Whether the draw of sentences explains all of the spread between runs of a row."""
        return 0 < self.variance <= self.noise

    def share(self, seeds: int) -> float:
        """How much of the variance of a difference is due to the draw of sentences, 0 to 1."""
        total = 2 * self.variance / seeds + self.sentences
        return (2 * min(self.noise, self.variance) / seeds + self.sentences) / total if total else 0.0

    def power(self, effect: float, seeds: int) -> float:
        """The chance to see a true difference of `effect` with so many seeds a row (2 or more): noncentral t."""
        own = 2 * self.variance / seeds
        total = own + self.sentences
        if total == 0:
            return 1.0
        spread = own**2 / (self.rows * (seeds - 1)) + self.sentences**2 / self.sentences_df
        df = min(total**2 / spread, NORMAL_DF)
        return float(stats.nct.sf(_critical(self.rows, df) / math.sqrt(2), df, effect / math.sqrt(total)))

    def seeds_needed(self, effect: float) -> float:
        """The least number of seeds a row that sees `effect` with a power of 80 %; inf where no number does."""
        return _least(lambda seeds: self.power(effect, seeds) >= POWER)

    def sentences_needed(self, effect: float, seeds: int) -> float:
        """How many times the sentences would see `effect` with these seeds a row; inf where no number does."""
        return _least(lambda times: self.with_sentences(times).power(effect, seeds) >= POWER)

    def detectable(self, seeds: int) -> float:
        """The least effect that so many seeds a row see with a power of 80 %."""
        low, high = 0.0, 1.0
        while self.power(high, seeds) < POWER:
            low, high = high, 2 * high
        for _ in range(12):
            middle = (low + high) / 2
            low, high = (low, middle) if self.power(middle, seeds) >= POWER else (middle, high)
        return high


def plans(comparison: Comparison) -> tuple[Plan, Plan, Plan] | None:
    """As the variances are estimated, and with each at the lower and at the upper end of its 95 % interval.

    None with one seed a row, from which nothing follows about seeds.
    """
    spread, sampling = comparison.spread, comparison.interaction
    if spread is None:
        return None
    typical, error, noise = (*sampling.typical, sampling.noise) if sampling else (0.0, 0.0, 0.0)
    df = sampling.df if sampling else NORMAL_DF
    found = []
    low, high = (spread.total_df / float(stats.chi2.ppf(end, spread.total_df)) for end in (1 - ERROR / 2, ERROR / 2))
    for factor, errors in ((1.0, 0.0), (low, -SURE), (high, SURE)):
        seeds = max(spread.pooled * factor, noise)
        found.append(Plan(seeds, max(typical + errors * error, 0.0), df, len(comparison.means), noise))
    return found[0], found[1], found[2]


def _least(enough: Callable[[int], bool]) -> float:
    """The least whole number up to MOST that is enough, with 1 taken to be too few; inf where none is."""
    if not enough(MOST):
        return math.inf
    low, high = 1, MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _critical(rows: int, df: float) -> float:
    """The studentised range between a few degrees of freedom, nearly linear in 1 / df."""
    at = np.array([1 / known for known in reversed(TABLE)])
    return float(np.interp(1 / df, at, [quantile(rows, known, ERROR) for known in reversed(TABLE)]))
