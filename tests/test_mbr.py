"""Minimum Bayes risk against its definition, with sacrebleu's own scores."""

import random

import numpy as np
import pytest
from sacrebleu.metrics.chrf import CHRF

from headcount.decoding.mbr import most_useful, sentence_chrf

METRIC = CHRF()
TEXTS = [
    "der Hund schläft im Garten .",
    "der Hund schläft in dem Garten .",
    "die Katze schläft .",
    "",
    "a",
    "aaaaaa",
    "im Garten schläft der alte Hund , der Hund .",
    "xyz",
]


def test_chrf_is_that_of_sacrebleu():
    expected = [[METRIC.sentence_score(hypothesis, [reference]).score for reference in TEXTS] for hypothesis in TEXTS]
    np.testing.assert_allclose(sentence_chrf(TEXTS), expected, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_the_choice_is_that_of_the_definition(seed):
    generator = random.Random(seed)
    words = ["der", "die", "Hund", "Hunde", "schläft", "schlafen", "."]
    samples = [" ".join(generator.choices(words, k=generator.randint(0, 4))) for _ in range(12)]
    samples += samples[:5]  # some more than once
    expected = {
        text: sum(METRIC.sentence_score(text, [other]).score for other in samples) / len(samples) for text in samples
    }
    found = most_useful(samples)
    assert dict(found) == pytest.approx(expected)
    assert len(found) == len(expected)
    assert [score for _, score in found] == pytest.approx(sorted(expected.values(), reverse=True))


def test_of_equals_the_first_is_chosen():
    assert [text for text, _ in most_useful(["c", "a", "b"])] == ["c", "a", "b"]
