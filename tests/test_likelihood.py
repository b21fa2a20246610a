"""Likelihood of given targets against stepwise sums; contrastive accuracy by hand."""

import math

import numpy as np
import pytest
import torch
from built import ONE_LAYER, built
from datasets import Dataset

from headcount.data.tokenizer import BOS, EOS
from headcount.evaluation.likelihood import TargetScorer, perplexity
from headcount.run.scores import contrastive_figures


def test_target_scores_are_sums_of_stepwise_log_probabilities():
    torch.manual_seed(2)
    model = built("model/nano", vocab_size=20, logit_cap=1.0, **ONE_LAYER).eval()

    def encode(lines: list[str]) -> list[list[int]]:
        return [[4 + ord(letter) - ord("a") for letter in line] for line in lines]

    sources, targets = ["abc", "b", "cdefg", ""], ["cab", "", "hgf", "a"]
    scorer = TargetScorer(model, encode, encode, batch_tokens=12)
    log_probs, tokens = scorer.score(sources, targets)
    assert tokens == [4, 1, 4, 2]
    with torch.no_grad():
        for source, target, log_prob in zip(encode(sources), encode(targets), log_probs, strict=True):
            ids = torch.tensor([[*source, EOS]])
            state, total, previous = model.start(ids, torch.ones_like(ids, dtype=torch.bool)), 0.0, BOS
            for token in [*target, EOS]:
                step, state = model.step(torch.tensor([previous]), state)
                total += step[0, token].item()
                previous = token
            assert log_prob == pytest.approx(total, abs=1e-4)


def test_target_scores_never_hold_the_logits_of_a_whole_batch(monkeypatch):
    model = built("model/nano", vocab_size=20, **ONE_LAYER).eval()
    seen = []
    model.output.register_forward_hook(lambda layer, given, logits: seen.append(logits.shape.numel() // 20))
    lines = ["abc" * 20] * 30
    TargetScorer(model, lambda texts: [[5] * len(text) for text in texts], lambda texts: [[6] * 60] * 30).score(
        lines, lines
    )
    assert sum(seen) >= 30 * 61
    assert max(seen) <= 512


def test_a_loss_beyond_every_float_has_an_infinite_perplexity():
    assert perplexity(math.log(7)) == pytest.approx(7)
    assert perplexity(710.0) == perplexity(math.inf) == math.inf
    assert math.isnan(perplexity(math.nan))


def test_contrastive_accuracy_counts_by_group_and_a_tie_is_wrong():
    rows = Dataset.from_dict({"phenomenon": ["order", "x", "order", "order", "case"], "grade": [*"ezehh"]})
    arrays = {"row": [0, 2, 3, 4], "right": [-1.0, -2.0, -1.0, -2.0], "wrong": [-2.0, -1.0, -2.0, -2.0]}
    found = contrastive_figures(rows, {name: np.array(each) for name, each in arrays.items()})
    assert found == {
        "order": {"e": {"accuracy": 50.0, "pairs": 2}, "h": {"accuracy": 100.0, "pairs": 1}},
        "case": {"h": {"accuracy": 0.0, "pairs": 1}},
    }
