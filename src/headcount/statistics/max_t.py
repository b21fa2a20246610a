"""Simultaneous inference on paired effects: bootstrap over sentences, max-T over the cells of a table.

An effect is the mean difference between a change and its absence, over the same sentences. All effects of a table are
one family: intervals hold for all at once, p-values are those of the step-down procedure of Romano and Wolf 2005. The
bootstrap keeps the correlation of rows and columns, so the bound is tighter than Holm's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headcount.statistics.bootstrap import Floats, resamples

ERROR = 0.05  # of the family: 1 - coverage of the intervals, and the probability of one false alarm or more
DRAWS = 2000
SMALLEST = 1 / 3  # of the sample's standard error: a resample that missed all outliers would seem too sure
NOISE = 1e-4  # nats, well above rounding of float32 sums


@dataclass(frozen=True)
class Sample:
    """Paired differences of one endpoint, one column of a table.

    values [row, unit]: differences to the whole model. sentence [unit]: the number of each unit's sentence. whole: the
    mean of the whole model. worse: +1 where a rise is harm, -1 where a fall is. harmless: the largest harm that does
    not matter. least: the standard deviation of noise that no unit shows, such as rounding, added to the mean; infinite
    where nothing can be said.
    """

    name: str
    values: Floats
    sentence: NDArray[np.int64]
    whole: float
    worse: int
    harmless: float
    least: float = NOISE


@dataclass(frozen=True)
class EffectTable:
    """Effects of rows on columns, all arrays [row, column] unless said otherwise.

    estimate: mean difference to the whole model; low, high: its simultaneous interval; p: step-down p-value. verdict:
    "differs" (p within the error), "non-inferior" (the harm is below the bound of the column at the worse end of the
    interval) or "inconclusive". harmless: the condition of "non-inferior" alone, which small effects that differ fulfil
    too. whole, units [column]: the mean of the whole model, the number of sentences or pairs. worse [column]: +1 where
    a rise is harm, -1 where a fall is.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    estimate: Floats
    low: Floats
    high: Floats
    p: Floats
    verdict: NDArray[np.str_]
    harmless: NDArray[np.bool_]
    whole: Floats
    units: NDArray[np.int64]
    worse: NDArray[np.int64]

    @property
    def harm(self) -> Floats:
        """The effects with the sign of harm: positive is worse in every column."""
        return self.estimate * self.worse


def compared(
    names: Sequence[str], columns: Sequence[Sample], draws: int = DRAWS, error: float = ERROR, seed: int = 0
) -> EffectTable:
    """The table of these columns; all its effects are one family.

    Statistics are Student's t on the z scale, so that columns with few pairs and with many weigh alike. The bootstrap
    gives the distribution of their largest, centred on the estimates; each resample has its own standard error, or
    skewed effects would be found too often (bootstrap-t; Hall 1988).
    """
    estimate = np.stack([column.values.mean(axis=1) for column in columns], axis=1)
    errors = np.stack([standard_errors(column) for column in columns], axis=1)
    units = np.array([column.values.shape[1] for column in columns])
    free = np.maximum(units - 1, 1)
    null = resampled(columns, draws, seed)
    statistic = as_normal(abs(estimate) / errors, free)
    p = step_down(statistic.ravel(), null).reshape(estimate.shape)
    critical = float(np.quantile(null.max(axis=1), 1 - error))
    half = as_student(critical, free) * errors
    worse = np.array([column.worse for column in columns])
    harmless = estimate * worse + half < np.array([column.harmless for column in columns])
    verdict = np.where(p <= error, "differs", np.where(harmless, "non-inferior", "inconclusive"))
    titles, whole = tuple(column.name for column in columns), np.array([column.whole for column in columns])
    low, high = estimate - half, estimate + half
    return EffectTable(tuple(names), titles, estimate, low, high, p, verdict, harmless, whole, units, worse)


def standard_errors(column: Sample) -> Floats:
    """Standard error of each row's mean; infinite for a single unit."""
    units = column.values.shape[1]
    if units < 2:
        return np.full(len(column.values), np.inf)
    found: Floats = np.hypot(column.values.std(axis=1, ddof=1) / np.sqrt(units), column.least)
    return found


def resampled(columns: Sequence[Sample], draws: int, seed: int) -> Floats:
    """Statistics of resamples of sentences, centred, each with its own standard error, [draw, row x column]."""
    weights = resamples(max(int(column.sentence.max()) for column in columns) + 1, draws, seed)
    found, noise = [], np.random.default_rng([seed, draws])
    for column in columns:
        values, least = column.values - column.values.mean(axis=1, keepdims=True), SMALLEST * standard_errors(column)
        if np.isinf(least).any():
            found.append(np.ones((draws, len(values))))
            continue
        sentences, place = np.unique(column.sentence, return_inverse=True)
        sums = np.zeros((len(sentences), 2 * len(values) + 1))
        np.add.at(sums, place, np.concatenate([values, values**2, np.ones((1, values.shape[1]))]).T)
        drawn = weights[:, sentences] @ sums
        units = np.maximum(drawn[:, -1:], 2)
        mean, square = np.split(drawn[:, :-1] / units, 2, axis=1)
        errors = np.hypot(np.sqrt(np.maximum(square - mean**2, 0) / (units - 1)), column.least)
        mean += column.least * noise.standard_normal(mean.shape)
        found.append(as_normal(abs(mean) / np.maximum(errors, least), np.array(values.shape[1] - 1)))
    return np.stack(found, axis=2).reshape(draws, -1)


def as_normal(t: Floats, free: NDArray) -> Floats:
    """The z of the same two-sided probability as |t| with these degrees of freedom (Wallace 1959), in any tail."""
    z: Floats = (8 * free + 1) / (8 * free + 3) * np.sqrt(free * np.log1p(t**2 / free))
    return z


def as_student(z: float, free: NDArray) -> Floats:
    """The t of which `as_normal` is z."""
    t: Floats = np.sqrt(free * np.expm1((z * (8 * free + 3) / (8 * free + 1)) ** 2 / free))
    return t


def step_down(statistic: Floats, null: Floats) -> Floats:
    """P-values of the step-down max-T procedure (Romano and Wolf 2005; Westfall and Young 1993, algorithm 2.8).

    statistic [hypothesis]: absolute. null [draw, hypothesis]: resampled under all null hypotheses.
    """
    order = np.argsort(-statistic)
    largest = np.maximum.accumulate(null[:, order[::-1]], axis=1)[:, ::-1]  # of this hypothesis and all weaker ones
    beyond = (largest >= statistic[order]).sum(axis=0)
    p = np.empty_like(statistic)
    p[order] = np.maximum.accumulate((beyond + 1) / (len(null) + 1))
    return p


@dataclass(frozen=True)
class Ratio:
    """Ratios of sums over sentences with percentile intervals of 95 % each, by bootstrap."""

    value: Floats
    low: Floats
    high: Floats


def ratio(above: NDArray, below: NDArray, draws: int = 1000, seed: int = 0) -> Ratio:
    """The sum of `above` over sentences by that of `below`, [...]; both [sentence, ...]; nan where `below` is 0."""
    above, below = np.broadcast_arrays(above.astype(np.float64), below.astype(np.float64))
    sentences, shape = len(above), above.shape[1:]
    weights = resamples(sentences, draws, seed)
    sums = [weights @ each.reshape(sentences, -1) for each in (above, below)]
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn, value = sums[0] / sums[1], above.sum(axis=0) / below.sum(axis=0)
    low, high = np.quantile(drawn, (ERROR / 2, 1 - ERROR / 2), axis=0).reshape(2, *shape)
    return Ratio(np.asarray(value), low, high)
