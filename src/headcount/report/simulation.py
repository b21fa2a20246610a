"""Studies whose truth is known, through the same analysis as real ones: how often it errs, and what it finds."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headcount.report.sentences import COUNTS, ORDERS, Floats, bleu_of, resampled_bleu, resamples
from headcount.report.statistics import Comparison, compare, interaction

PRECISIONS = (0.68, 0.45, 0.30, 0.20)  # of n-grams of order 1 to 4, at a BLEU of 36.8
GRID = np.linspace(-3, 3, 601)  # log-odds around these
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(61)


@dataclass(frozen=True)
class World:
    """How studies come about: n-grams match by chance, more easily in easy sentences, in good rows, with lucky seeds.

    sentences: of the test set. words: of a sentence, on average. bleu: of a row without effect, on all sentences there
    could be. seed_deviation: of a run's BLEU around its row's, on all these sentences; that of the last row is so many
    times, unsteady, as large. By sentence, in log-odds of a
    match: difficulty: the deviation shared by all rows; interaction: that of one row; noise: that of one run.
    """

    sentences: int = 1000
    words: float = 12.0
    bleu: float = 36.0
    seed_deviation: float = 0.4
    unsteady: float = 1.0
    difficulty: float = 1.2
    interaction: float = 0.3
    noise: float = 0.2

    def __post_init__(self) -> None:
        for name in ("sentences", "words"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be 1 or more")
        for name in ("seed_deviation", "unsteady", "difficulty", "interaction", "noise"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)}: must be 0 or more")
        if not 5 <= self.bleu <= 90:
            raise ValueError(f"bleu={self.bleu}: must be from 5 to 90")

    def draw(self, truth: Floats, seeds: int, rng: np.random.Generator) -> Floats:
        """One study: the counts of sentences, [row x seed, sentence, 10], of rows whose BLEU is `truth` on all
        sentences and over all seeds."""
        rows = len(truth)
        lengths = 1 + rng.poisson(self.words - 1, self.sentences)
        totals = np.maximum(lengths[:, None] - np.arange(ORDERS), 0)  # [sentence, order]
        deviation = self.seed_deviation * np.where(np.arange(rows) == rows - 1, self.unsteady, 1.0)
        runs = truth[:, None] + deviation[:, None] * rng.standard_normal((rows, seeds))
        sentence = self.difficulty * rng.standard_normal(self.sentences)
        row = self.interaction * rng.standard_normal((rows, 1, self.sentences))
        own = self.noise * rng.standard_normal((rows, seeds, self.sentences))
        shift = self._shift(runs)[..., None] + sentence + row + own  # [row, seed, sentence]
        chances = _sigmoid(shift[..., None] + _log_odds())
        counts = np.empty((rows, seeds, self.sentences, COUNTS))
        counts[..., :ORDERS] = rng.binomial(totals, chances)
        counts[..., ORDERS : 2 * ORDERS] = totals
        counts[..., -2:] = lengths[:, None]
        return counts.reshape(rows * seeds, self.sentences, COUNTS)

    def _shift(self, bleu: Floats) -> Floats:
        """Log-odds that give a BLEU on all sentences there could be."""
        spread = np.sqrt(self.difficulty**2 + self.interaction**2 + self.noise**2)
        chances = _sigmoid(GRID[:, None, None] + _log_odds()[:, None] + spread * NODES)  # [grid, order, node]
        expected = chances @ WEIGHTS / WEIGHTS.sum()
        counts = np.concatenate([expected, np.ones((len(GRID), ORDERS + 2))], axis=1)
        return np.interp(bleu, bleu_of(counts), GRID)


def _log_odds() -> Floats:
    precisions = np.array(PRECISIONS)
    return np.log(precisions / (1 - precisions))


def _sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


@dataclass(frozen=True)
class Outcome:
    """What the analysis made of one study.

    covered: the share of pairs whose interval holds the true difference. alarm: whether a pair is said to differ that
    does not. found: the share of the pairs that differ that is said to, with the right sign; NaN if there are none.
    """

    covered: float
    alarm: bool
    found: float


def outcome(comparison: Comparison, truth: Floats) -> Outcome:
    """An analysis against the true BLEU of every row."""
    covered, alarms, found = [], [], []
    for difference in comparison.differences:
        true = truth[difference.first] - truth[difference.second]
        covered.append(abs(difference.value - true) <= difference.margin)
        if true:
            found.append(difference.differs and difference.value * true > 0)
        else:
            alarms.append(difference.differs)
    return Outcome(float(np.mean(covered)), any(alarms), float(np.mean(found)) if found else math.nan)


def simulate(world: World, truth: Floats, seeds: int, studies: int, draws: int, seed: int = 0) -> Iterator[Outcome]:
    """So many studies of rows with such a true BLEU, so many seeds a row, and so many resamples in the analysis."""
    weights = resamples(world.sentences, draws, seed)
    for study in range(studies):
        counts = world.draw(truth, seeds, np.random.default_rng([seed, seeds, study]))
        yield outcome(analyse(counts, len(truth), weights), truth)


def analyse(counts: Floats, rows: int, weights: Floats) -> Comparison:
    """The analysis of the report: counts [row x seed, sentence, 10] to all pairs of rows."""
    scores = bleu_of(counts.sum(axis=1)).reshape(rows, -1)
    row_of = np.repeat(np.arange(rows), scores.shape[1])
    sampling = interaction(resampled_bleu(counts, weights), row_of.tolist(), counts.shape[1])
    return compare(scores.tolist(), sampling)
