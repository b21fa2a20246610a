"""Sampling: which translations are drawn, and how often."""

import math
from collections import Counter

import pytest
import torch
from built import built
from toy import BOS, EOS, TableModel, every_translation, found_by, log_prob, spell

from headcount.decoding.search import Hypothesis, Translation

LOG_PROBS = torch.tensor([-math.inf, 0.1, 0.4, 0.3, 0.05, 0.15])
LOG_PROBS[1:] = LOG_PROBS[1:].log()


def agrees(counts: dict, probabilities: dict) -> bool:
    """Pearson's chi-square within four standard deviations of its mean; categories that are rare are put together."""
    total = sum(counts.values())
    often = {key for key, probability in probabilities.items() if probability * total >= 5}
    rest = 1 - sum(probabilities[key] for key in often)
    cells = [(counts.get(key, 0), probabilities[key] * total) for key in often]
    cells.append((sum(count for key, count in counts.items() if key not in often), rest * total))
    statistic = sum((seen - expected) ** 2 / expected for seen, expected in cells if expected > 1e-3)
    freedom = len(cells) - 1
    return statistic < freedom + 4 * math.sqrt(2 * freedom)


@pytest.mark.medium
def test_translations_come_as_often_as_the_model_says():
    model, limit, samples = TableModel(vocab=5, seed=11), 3, 4000
    (found,) = found_by(built("search/sample", samples=samples, seed=3), model, [0], [limit], samples)
    probabilities = {tuple(tokens): math.exp(score) for score, tokens in every_translation(model, 0, limit)}
    # One that has reached its limit must end, whatever the model thinks of that.
    for tokens in probabilities:
        if len(tokens) == limit:
            probabilities[tokens] /= model.log_probs((0, BOS, *tokens))[EOS].exp().item()
    assert sum(probabilities.values()) == pytest.approx(1, abs=1e-5)
    counts = Counter(tuple(tokens) for tokens, _ in found)
    assert agrees(counts, probabilities)
    wrong = dict(zip(probabilities, [*list(probabilities.values())[1:], probabilities[()]], strict=True))
    assert not agrees(counts, wrong)
    for tokens, score in found[:50]:
        assert score == pytest.approx(log_prob(model, 0, tokens), abs=1e-5)


def drawn(count=20_000, **settings):
    """How often each token is drawn from LOG_PROBS."""
    uniform = torch.rand(1, count, generator=torch.Generator().manual_seed(5))
    return Counter(built("search/sample", **settings).draw(LOG_PROBS[None], uniform)[0].tolist())


CUTS = {
    "nothing": ({}, {1, 2, 3, 4, 5}),
    "temperature": ({"temperature": 0.5}, {1, 2, 3, 4, 5}),
    "k": ({"top_k": 2}, {2, 3}),
    "p": ({"top_p": 0.75}, {2, 3, 5}),
    "p of what k leaves": ({"top_k": 3, "top_p": 0.8}, {2, 3}),  # 0.4 and 0.3 of 0.85
    "p of what temperature makes": ({"temperature": 0.5, "top_p": 0.6}, {2, 3}),  # 0.16 and 0.09 of 0.285
    "all": ({"temperature": 2.0, "top_k": 4, "top_p": 0.99}, {1, 2, 3, 5}),
}


@pytest.mark.parametrize("case", CUTS)
def test_cuts_keep_to_their_set_and_renormalise(case):
    settings, kept = CUTS[case]
    weights = {token: LOG_PROBS[token].exp().item() ** (1 / settings.get("temperature", 1)) for token in kept}
    counts = drawn(**settings)
    assert set(counts) == kept
    if len(kept) > 1:
        assert agrees(counts, {token: weight / sum(weights.values()) for token, weight in weights.items()})


def test_the_ends_of_the_interval_draw_what_is_possible():
    ends = torch.tensor([[0.0, 1 - 2**-24]])
    for settings in ({}, {"top_k": 3}, {"top_p": 0.5}, {"temperature": 0.01}):
        tokens = built("search/sample", **settings).draw(LOG_PROBS[None], ends)[0]
        assert bool((LOG_PROBS[tokens] > -math.inf).all())
    impossible_last = LOG_PROBS.flip(0)[None]
    assert built("search/sample").draw(impossible_last, ends)[0].tolist() == [0, 4]


@pytest.mark.parametrize("settings", [{"temperature": 1e-5}, {"top_k": 1}, {"top_p": 1e-9}])
def test_the_sharpest_is_greedy(settings):
    model, limits = TableModel(vocab=7, seed=9), [8, 3, 5]
    greedy = found_by(built("search/beam", beam=1, alpha=0), model, [0, 1, 2], limits)
    found = found_by(built("search/sample", samples=4, **settings), model, [0, 1, 2], limits, 4)
    assert [[tokens for tokens, _ in hypotheses] for hypotheses in found] == [[best.tokens] * 4 for (best,) in greedy]
    assert [h[0].score for h in found] == pytest.approx([best.score for (best,) in greedy], abs=1e-5)


def test_a_seed_gives_the_same_samples_however_many_follow():
    three, other_seed = built("search/sample", samples=3), built("search/sample", samples=3, seed=2)
    given = TableModel(vocab=7, seed=5), [0, 1, 2], [8, 3, 12]
    found = found_by(three, *given, 3)
    assert found_by(three, *given, 3) == found != found_by(other_seed, *given, 3)
    assert found_by(three, *given, 1) == [samples[:1] for samples in found]


def test_samples_are_given_as_drawn():
    found = [[Hypothesis([4], -3.0), Hypothesis([2], -1.0), Hypothesis([2], -1.0)]]
    expected = [Translation("b", -3.0), Translation("a", -1.0), Translation("a", -1.0)]
    for count in (1, 2, 3):
        assert built("search/sample", samples=3).choose(found, count, spell) == [expected[:count]]


def test_only_the_samples_that_are_asked_for_are_drawn_but_for_bayes_risk():
    assert [built(f"search/{kind}", samples=8).rows(1) for kind in ("sample", "mbr")] == [1, 8]
