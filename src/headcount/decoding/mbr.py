"""Minimum Bayes risk decoding with chrF as the utility (Müller and Sennrich 2021)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.helpers import extract_all_char_ngrams

from headcount.decoding.sampling import Sampling
from headcount.decoding.search import Decode, Hypothesis, Translation


@dataclass(frozen=True, kw_only=True)
class MinimumBayesRisk(Sampling):
    """Minimum Bayes risk: of the samples, the one with the greatest expected utility, which is the mean of its sentence
    chrF against all samples, itself and equal ones included.

    Eikema and Aziz 2020, "Is MAP decoding all you need?", equation 5; the utility is that of Müller and Sennrich 2021,
    "Understanding the properties of minimum Bayes risk decoding". The score of a translation is its expected chrF, 0 to
    100. The settings are those of `Sampling`, and the estimate is unbiased if nothing is cut off.
    """

    def rows(self, count: int) -> int:
        super().rows(count)  # raises InputError
        return self.samples  # the utility is a mean over all

    @property
    def settings(self) -> dict[str, Any]:
        return {"utility": f"chrF{CHRF.BETA}"} | super().settings

    def choose(self, found: list[list[Hypothesis]], count: int, decode: Decode) -> list[list[Translation]]:
        """At most `count` translations of each sentence, the greatest expected utility first, each text once."""
        texts = iter(decode([tokens for hypotheses in found for tokens, _ in hypotheses]))
        return [most_useful([next(texts) for _ in hypotheses])[:count] for hypotheses in found]


def most_useful(samples: Sequence[str]) -> list[Translation]:
    """The distinct samples and their mean sentence chrF against all, the greatest first, of equals what came first."""
    counts = Counter(samples)
    texts = list(counts)
    utilities = sentence_chrf(texts) @ (np.array(list(counts.values())) / len(samples))
    return [Translation(texts[best], float(utilities[best])) for best in np.argsort(-utilities, kind="stable")]


def sentence_chrf(texts: Sequence[str]) -> np.ndarray:
    """chrF2 [hypothesis, reference] of every text against every other, 0 to 100: what `CHRF().sentence_score` of
    sacrebleu gives (Popović 2015), with the n-grams of each text counted once.

    Where either text is too short for n-grams of an order, that order does not count.
    """
    orders, beta = CHRF.CHAR_ORDER, CHRF.BETA
    ngrams = [extract_all_char_ngrams(text, orders) for text in texts]
    totals = np.array([[sum(counter.values()) for counter in counters] for counters in ngrams])  # [text, order]
    matches = np.zeros((len(texts), len(texts), orders))
    for order in range(orders):
        columns: dict[str, int] = {}
        for counters in ngrams:
            for ngram in counters[order]:
                columns.setdefault(ngram, len(columns))
        counts = np.zeros((len(texts), len(columns)), dtype=np.int32)
        for row, counters in zip(counts, ngrams, strict=True):
            row[[columns[ngram] for ngram in counters[order]]] = list(counters[order].values())
        for text, row in enumerate(counts):
            matches[text, :, order] = np.minimum(row, counts).sum(axis=1)
    counted = (totals[:, None] > 0) & (totals[None] > 0)
    used = np.maximum(counted.sum(axis=2), 1)
    precision = (matches / np.maximum(totals[:, None], 1)).sum(axis=2) / used
    recall = (matches / np.maximum(totals[None], 1)).sum(axis=2) / used
    return 100 * (1 + beta**2) * precision * recall / np.maximum(beta**2 * precision + recall, 1e-30)
