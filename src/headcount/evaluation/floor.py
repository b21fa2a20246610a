"""The floor of contrastive accuracy: a trigram model of the target that never sees the source.

Interpolated Kneser-Ney smoothing with one discount an order, n1 / (n1 + 2 n2) (Kneser and Ney 1995; Chen and Goodman
1999, "An empirical study of smoothing techniques for language modeling", equation 24). Where it ranks pairs of
translations well, they do not test translation.
"""

import numpy as np
from numpy.typing import NDArray

from headcount.data.batches import Sentences
from headcount.data.tokenizer import BOS, EOS

ORDER = 3
BITS = 20  # of a subword's number: three of them are a key

Keys = NDArray[np.int64]


class Trigram:
    """Log-probabilities of sentences of subwords under the trigrams of a training text.

    p(w | u v) = (c(u v w) - D) / c(u v) + D N(u v .) / c(u v) p(w | v), where N(u v .) counts the different words after
    u v. Below the trigrams, c is the number of different words before; below the single words, all are equally likely.
    """

    def __init__(self, text: Sentences, vocabulary: int) -> None:
        """text: the training text. vocabulary: the number of subwords."""
        self.vocabulary = vocabulary
        keys, counts = np.unique(_trigrams(text)[0], return_counts=True)
        self.orders = [_Order(keys, counts)]
        while len(self.orders) < ORDER:
            shorter = keys & (2 ** (BITS * (ORDER - len(self.orders))) - 1)
            keys, counts = np.unique(shorter, return_counts=True)
            self.orders.append(_Order(keys, counts))

    def log_prob(self, sentences: Sentences) -> NDArray[np.float64]:
        """The log-probability of each sentence in nats, its end included, [sentence]."""
        keys, owner = _trigrams(sentences)
        sums = np.zeros(len(sentences.starts))
        np.add.at(sums, owner, np.log(self.probabilities(keys)))
        return sums

    def probabilities(self, keys: Keys) -> NDArray[np.float64]:
        """The probability of the last word of each trigram (u, v, w) after the others, [trigram]; each is the number
        u << 2 BITS | v << BITS | w."""
        p = np.full(len(keys), 1 / self.vocabulary)
        for number in reversed(range(ORDER)):
            p = self.orders[number].interpolated(keys & (2 ** (BITS * (ORDER - number)) - 1), p)
        return p


class _Order:
    """The n-grams of one order: what each counts, and what each context counts in all."""

    def __init__(self, keys: Keys, counts: NDArray[np.int64]) -> None:
        self.keys, self.counts = keys, counts
        once, twice = (counts == 1).sum(), (counts == 2).sum()
        self.discount = once / (once + 2 * twice) if once else 0.5
        self.contexts, first = np.unique(keys >> BITS, return_index=True)
        self.totals = np.add.reduceat(counts, first)
        self.kinds = np.diff([*first, len(keys)])

    def interpolated(self, keys: Keys, lower: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probabilities of the last word of each key; of an unknown context, those of the order below."""
        counts, context = _found(self.keys, self.counts, keys), keys >> BITS
        totals, kinds = (_found(self.contexts, each, context) for each in (self.totals, self.kinds))
        known = np.maximum(totals, 1)
        own = (np.maximum(counts - self.discount, 0) + self.discount * kinds * lower) / known
        return np.where(totals > 0, own, lower)


def _found(known: Keys, values: NDArray[np.int64], keys: Keys) -> NDArray[np.int64]:
    """The value of each key, 0 for one that is not known."""
    places = np.searchsorted(known, keys).clip(max=len(known) - 1)
    return np.where(known[places] == keys, values[places], 0)


def _trigrams(sentences: Sentences) -> tuple[Keys, NDArray[np.int64]]:
    """Each trigram as one number, and the sentence that it is of; two beginnings before a sentence, one end after."""
    rows = [[BOS, BOS, *sentences.row(number), EOS] for number in range(len(sentences.starts))]
    text = np.fromiter((piece for row in rows for piece in row), np.int64)
    ends = np.cumsum([len(row) for row in rows])
    last = np.ones(len(text), dtype=bool)  # not the two beginnings
    last[np.r_[0, ends[:-1]]] = last[np.r_[0, ends[:-1]] + 1] = False
    places = np.flatnonzero(last)
    keys = text[places - 2] << 2 * BITS | text[places - 1] << BITS | text[places]
    return keys, np.searchsorted(ends, places, side="right")
