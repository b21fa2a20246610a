"""The floor of contrastive accuracy: worked values of the trigram model."""

import math

import numpy as np
import pytest

from headcount.data.batches import Sentences
from headcount.data.tokenizer import BOS, EOS
from headcount.evaluation.floor import BITS, Trigram

A, B, C, D = 4, 5, 6, 7
TEXT = [[A, B], [A, B], [A, C]]
VOCABULARY = 8


def log_prob(model: Trigram, *sentences: list[int]) -> list[float]:
    return model.log_prob(Sentences.of(list(sentences))).tolist()


def test_probabilities_are_those_worked_out_by_hand():
    """Trigrams: ^^a 3, ^ab 2, ab$ 2, ^ac 1, ac$ 1, so one counts 1 twice and 2 twice: D3 = 2 / (2 + 4) = 1/3.

    Bigrams by what precedes: ^a 1, ab 1, ac 1, b$ 1, c$ 1: D2 = 1. Words by what precedes: a 1, b 1, c 1, $ 2:
    D1 = 3 / (3 + 2) = 3/5.
    """
    model = Trigram(Sentences.of(TEXT), VOCABULARY)
    assert [order.discount for order in model.orders] == pytest.approx([1 / 3, 1, 3 / 5])
    words = {word: (count - 0.6) / 5 + 0.6 * 4 / 5 / 8 for word, count in {A: 1, B: 1, C: 1, EOS: 2}.items()}
    a = (3 - 1 / 3) / 3 + 1 / 9 * words[A]  # after ^, a alone is known: D2 N / c = 1
    b = (2 - 1 / 3) / 3 + 2 / 9 * words[B]
    end = (2 - 1 / 3) / 2 + 1 / 6 * words[EOS]
    assert log_prob(model, [A, B]) == pytest.approx([math.log(a) + math.log(b) + math.log(end)])
    # D was never seen: the context ^a is known, a d and d $ are not.
    unknown = 0.6 * 4 / 5 / 8
    assert log_prob(model, [A, D]) == pytest.approx([math.log(a) + math.log(2 / 9 * unknown) + math.log(words[EOS])])


def test_what_may_follow_a_context_sums_to_one():
    random = np.random.default_rng(1)
    text = [random.integers(4, 40, size=random.integers(1, 9)).tolist() for _ in range(200)]
    model = Trigram(Sentences.of(text), 40)
    for u, v in ((BOS, BOS), (BOS, text[0][0]), tuple(text[1][:2]), (39, 3)):
        keys = u << 2 * BITS | v << BITS | np.arange(40)
        assert model.probabilities(keys).sum() == pytest.approx(1)
