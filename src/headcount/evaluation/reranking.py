"""N-best reranking: of each sentence's translations, the one with the greatest weighted sum of features."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import product

import numpy as np

from headcount.decoding.translator import Translator
from headcount.evaluation.likelihood import TargetScorer

# The features after the forward log-probability, whose weight is 1, and the weights to try.
GRID = {
    "backward": tuple(round(0.1 * step, 1) for step in range(16)),  # nats of the source for a nat of the translation
    "length": tuple(round(0.1 * step, 1) for step in range(-5, 21)),  # nats for each token of the translation
}


@dataclass(frozen=True)
class Features:
    """Features of the translations of every sentence, each an array of [translation] for each sentence.

    forward: log-probability in nats of the translation given the source. backward: of the source given the
    translation; None without a run of the other direction. length: tokens of the translation, its end counted.
    """

    forward: Sequence[np.ndarray]
    backward: Sequence[np.ndarray] | None
    length: Sequence[np.ndarray]

    @property
    def names(self) -> tuple[str, ...]:
        """The features that have a weight to choose."""
        return ("length",) if self.backward is None else ("backward", "length")

    def best(self, weights: Mapping[str, float]) -> list[int]:
        """For each sentence the index of the best translation, of equals the first.

        The sum is that of Yee et al. 2019, "Simple and effective noisy channel modeling for neural machine
        translation", with a weight for each token instead of a language model.
        """
        backward = self.forward if self.backward is None else self.backward
        weight = 0.0 if self.backward is None else weights["backward"]
        return [
            int(np.argmax(forward + weight * back + weights["length"] * length))
            for forward, back, length in zip(self.forward, backward, self.length, strict=True)
        ]


def choose_weights(
    features: Features, score: Callable[[list[int]], float], fixed: Mapping[str, float]
) -> dict[str, float]:
    """The weights of `GRID` with the highest score of the best translations; of equals those nearest to 0.

    score: of a choice, the index of a translation for each sentence. fixed: weights that are not to be chosen.
    """
    tried = [(fixed[name],) if name in fixed else GRID[name] for name in features.names]
    grid = (dict(zip(features.names, each, strict=True)) for each in product(*tried))
    nearest_first = sorted(grid, key=lambda weights: sum(map(abs, weights.values())))
    return max(nearest_first, key=lambda weights: score(features.best(weights)))


def at_the_edge(weights: Mapping[str, float]) -> list[str]:
    """The names of the weights that are the greatest or the smallest of `GRID`, so that a better one may lie beyond."""
    return [name for name, weight in weights.items() if weight and weight in (GRID[name][0], GRID[name][-1])]


@dataclass
class Reranker:
    """The n best translations of a translator, and their features by scorers of its direction and of the other; where
    several score one direction, the mean of their log-probabilities. Each text is searched once."""

    translator: Translator
    forward: Sequence[TargetScorer]
    backward: Sequence[TargetScorer]
    nbest: int

    def __post_init__(self) -> None:
        self._found: dict[tuple[str, ...], tuple[list[list[str]], Features]] = {}

    def by(self, choose: Callable[[Features], Sequence[int]]) -> Translator:
        """A translator that gives of each sentence the translation whose index `choose` gives."""

        def translate(lines: Sequence[str], progress: Callable[[int], None] | None = None) -> list[str]:
            texts, features = self.candidates(lines, progress)
            return [each[index] for each, index in zip(texts, choose(features), strict=True)]

        chosen = copy(self.translator)
        chosen.translate = translate  # type: ignore[method-assign]
        return chosen

    def candidates(
        self, lines: Sequence[str], progress: Callable[[int], None] | None = None
    ) -> tuple[list[list[str]], Features]:
        """The translations of every source, as the search orders them, and their features. Raises LineError."""
        key = tuple(lines)
        if key not in self._found:
            found = self.translator.nbest(lines, self.nbest, progress)
            texts = [[translation.text for translation in each] for each in found]
            repeated = [source for source, each in zip(lines, texts, strict=True) for _ in each]
            flat = [text for each in texts for text in each]
            ends = np.cumsum([len(each) for each in texts])[:-1]
            scores = [scorer.score(repeated, flat) for scorer in self.forward]
            backward = [scorer.score(flat, repeated)[0] for scorer in self.backward]
            features = Features(
                np.split(np.mean([log_probs for log_probs, _ in scores], axis=0), ends),
                np.split(np.mean(backward, axis=0), ends) if backward else None,
                np.split(np.array(scores[0][1]), ends),
            )
            self._found[key] = texts, features
        return self._found[key]
