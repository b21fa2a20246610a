"""Simulated studies with known true scores, to measure the error rates and the power of the analysis."""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headcount.statistics.bootstrap import COUNTS, ORDERS, Floats, bleu_of, resampled_bleu, resamples
from headcount.statistics.comparison import Comparison, compare, interaction

PRECISIONS = (0.68, 0.45, 0.30, 0.20)  # of n-grams of order 1 to 4, at a BLEU of 36.8
GRID = np.linspace(-3, 3, 601)  # shifts of their log-odds
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(61)


@dataclass(frozen=True, kw_only=True)
class World:
    """A generative model of studies: n-grams match at random, with odds that depend on sentence, row and seed.

    sentences: of the held-out text; None: infinitely many, so that a run has its true score, as in the analysis of
    losses. words: mean length of a sentence. bleu: true score of a row without effect, over all sentences.
    seed_deviation: standard deviation of the true scores of a row's runs. deviations: that of each row, in multiples of
    it; empty: 1 in every row. corpus_deviation: standard deviation of what the corpus of a seed adds to all rows, in a
    world without sentences; None: all runs share one corpus. Standard deviations between sentences of the log-odds of a
    match: difficulty: the same for all rows; interaction: of one row; noise: of one run.
    """

    sentences: int | None
    words: float
    bleu: float
    seed_deviation: float
    deviations: Sequence[float]
    corpus_deviation: float | None
    difficulty: float
    interaction: float
    noise: float

    def __post_init__(self) -> None:
        if self.sentences is not None and self.sentences < 1:
            raise ValueError(f"sentences={self.sentences}: must be 1 or more, or null")
        if self.words < 1:
            raise ValueError(f"words={self.words}: must be 1 or more")
        for name in ("seed_deviation", "difficulty", "interaction", "noise"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)}: must be 0 or more")
        if self.corpus_deviation is not None and (self.corpus_deviation < 0 or self.sentences is not None):
            raise ValueError(
                f"corpus_deviation={self.corpus_deviation}: must be 0 or more, with sentences=null, or null"
            )
        if any(deviation < 0 for deviation in self.deviations):
            raise ValueError(f"deviations={list(self.deviations)}: each must be 0 or more")
        if not 5 <= self.bleu <= 90:
            raise ValueError(f"bleu={self.bleu}: must be from 5 to 90")

    def runs(self, truth: Floats, seeds: int, rng: np.random.Generator) -> Floats:
        """The true scores of runs, [row, seed]. truth: the true mean score of each row."""
        deviations = self.seed_deviation * np.array(self.deviations or [1.0] * len(truth))
        scores = truth[:, None] + deviations[:, None] * rng.standard_normal((len(truth), seeds))
        return scores if self.corpus_deviation is None else scores + self.corpus_deviation * rng.standard_normal(seeds)

    def draw(self, truth: Floats, seeds: int, rng: np.random.Generator) -> Floats:
        """One study: n-gram counts, [row x seed, sentence, 10]. truth: the true BLEU of each row."""
        rows, sentences = len(truth), self.sentences or 0
        lengths = 1 + rng.poisson(self.words - 1, sentences)
        totals = np.maximum(lengths[:, None] - np.arange(ORDERS), 0)  # [sentence, order]
        runs = self.runs(truth, seeds, rng)
        sentence = self.difficulty * rng.standard_normal(sentences)
        row = self.interaction * rng.standard_normal((rows, 1, sentences))
        run = self.noise * rng.standard_normal((rows, seeds, sentences))
        shift = self._shift(runs)[..., None] + sentence + row + run  # [row, seed, sentence]
        chances = _sigmoid(shift[..., None] + _log_odds())
        counts = np.empty((rows, seeds, sentences, COUNTS))
        counts[..., :ORDERS] = rng.binomial(totals, chances)
        counts[..., ORDERS : 2 * ORDERS] = totals
        counts[..., -2:] = lengths[:, None]
        return counts.reshape(rows * seeds, sentences, COUNTS)

    def _shift(self, bleu: Floats) -> Floats:
        """The shift of log-odds that gives a true BLEU."""
        return np.interp(bleu, _bleu_by_shift(math.hypot(self.difficulty, self.interaction, self.noise)), GRID)


@functools.cache
def _bleu_by_shift(spread: float) -> Floats:
    """True BLEU at each shift of GRID. spread: standard deviation between sentences, in log-odds."""
    chances = _sigmoid(GRID[:, None, None] + _log_odds()[:, None] + spread * NODES)  # [grid, order, node]
    expected = chances @ WEIGHTS / WEIGHTS.sum()
    return bleu_of(np.concatenate([expected, np.ones((len(GRID), ORDERS + 2))], axis=1))


def _log_odds() -> Floats:
    precisions = np.array(PRECISIONS)
    return np.log(precisions / (1 - precisions))


def _sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


@dataclass(frozen=True)
class Outcome:
    """The verdicts of the analysis on one simulated study.

    covered: the share of pairs whose interval contains the true difference. alarm: whether any pair without a true
    difference gets the verdict "differ". found: of the pairs that truly differ, the share detected with the right sign;
    NaN if there are none. equal: of the pairs whose true difference is below the margin, the share with the verdict
    "equal"; NaN if there are none. false_equal: whether any other pair gets the verdict "equal".
    """

    covered: float
    alarm: bool
    found: float
    equal: float
    false_equal: bool


def outcome(comparison: Comparison, truth: Floats, margin: float) -> Outcome:
    """Compare the verdicts with the true score of every row. margin: of equality, in BLEU."""
    covered: list[bool] = []
    alarms: list[bool] = []
    found: list[bool] = []
    equal: list[bool] = []
    wrong: list[bool] = []
    for difference in comparison.differences:
        true = truth[difference.first] - truth[difference.second]
        covered.append(abs(difference.value - true) <= difference.half_width)
        if true:
            found.append(difference.differs and difference.value * true > 0)
        else:
            alarms.append(difference.differs)
        (equal if abs(true) < margin else wrong).append(difference.equal(margin))
    return Outcome(_mean(covered), any(alarms), _mean(found), _mean(equal), any(wrong))


def _mean(shares: Sequence[bool]) -> float:
    return float(np.mean(shares)) if shares else math.nan


def simulate(
    world: World, truth: Floats, seeds: int, studies: int, draws: int, seed: int = 0, margin: float = math.inf
) -> Iterator[Outcome]:
    """Outcomes of simulated studies. truth: the true score of each row. seeds: runs a row. draws: resamples in the
    analysis. seed: of the simulation. margin: of equality, in BLEU."""
    weights = resamples(world.sentences, draws, seed) if world.sentences else None
    for study in range(studies):
        rng = np.random.default_rng([seed, seeds, study])
        if weights is None:
            comparison = compare(world.runs(truth, seeds, rng).tolist(), blocks=world.corpus_deviation is not None)
        else:
            comparison = analyse(world.draw(truth, seeds, rng), len(truth), weights)
        yield outcome(comparison, truth, margin)


def analyse(counts: Floats, rows: int, weights: Floats) -> Comparison:
    """The analysis of a report, from counts [row x seed, sentence, 10]. weights: of the resamples."""
    scores = bleu_of(counts.sum(axis=1)).reshape(rows, -1)
    row_of = np.repeat(np.arange(rows), scores.shape[1])
    sampling = interaction(resampled_bleu(counts, weights), row_of.tolist(), counts.shape[1])
    return compare(scores.tolist(), sampling)
