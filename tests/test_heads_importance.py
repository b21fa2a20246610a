"""Gradient importance: gradients of gates are finite differences, a proxy that is the truth correlates perfectly."""

from pathlib import Path

import numpy as np
import pytest
import torch
from built import BOUNDS, ONE_LAYER, built
from scipy.stats import spearmanr

from headcount.data.batches import Sentences
from headcount.heads.importance import gate_gradients, guide, normalised_by_layer, spearman
from headcount.heads.interface import Heads
from headcount.heads.likelihood import token_log_probs
from headcount.heads.results import Results
from headcount.heads.sections.proxies import subject

VOCAB = 30


@pytest.fixture(scope="module")
def heads():
    torch.manual_seed(1)
    shape = {**ONE_LAYER, "decoder_layers": 2, "feed_forward": "gelu"}  # without the kinks of ReLU
    return Heads(built("model/nano", **shape, vocab_size=VOCAB).eval().double())


@pytest.fixture(scope="module")
def sentences():
    random = np.random.default_rng(0)
    sides = [[random.integers(4, VOCAB, length).tolist() for length in random.integers(2, 9, 12)] for _ in range(2)]
    return [Sentences.of(side) for side in sides]


def test_gradients_of_gates_are_finite_differences(heads, sentences):
    step = 1e-3
    gates = torch.eye(len(heads), dtype=torch.double) * step
    sums = token_log_probs(heads, *sentences, torch.cat([1 + gates, 1 - gates])).sums
    differences = -(sums[: len(heads)] - sums[len(heads) :]).T / (2 * step)
    found = gate_gradients(heads, *sentences)
    assert found.shape == (12, len(heads)) == differences.shape
    assert np.abs(found - differences).max() < 1e-3
    assert np.abs(found).max() > 0.05
    assert all(parameter.grad is None for parameter in heads.model.parameters())


def test_importances_are_normalised_by_layer():
    names = np.array(["encoder1.1", "encoder1.2", "cross1.1", "cross2.1", "cross2.2"])
    found = normalised_by_layer(np.array([3.0, 4.0, 7.0, 0.0, 0.0]), names)
    assert found == pytest.approx([0.6, 0.8, 1, 0, 0])


def test_rank_correlation_is_that_of_scipy():
    random = np.random.default_rng(0)
    first, second = random.integers(0, 6, (2, 3, 8, 2))
    for draw in range(3):
        for column in range(2):
            expected = spearmanr(first[draw, :, column], second[draw, :, column]).statistic
            assert spearman(first, second)[draw, column] == pytest.approx(expected)


def planted(sentences=60, count=8, noise=0.05):
    """Gradients that are the true effects on loss, and unrelated to the effects on the margin of the pairs."""
    random = np.random.default_rng(2)
    effect = np.arange(count)[:, None] + noise * random.standard_normal((count, sentences))
    row = np.arange(0, sentences, 2)
    margin = np.arange(count)[:, None] + noise * random.standard_normal((count, len(row)))
    names = np.array([f"cross1.{head}" for head in range(1, count + 1)])
    labels = {"row": row, "phenomenon": np.array(["order"] * len(row)), "head": names}
    zero = {
        "zero.reference": -np.concatenate([np.zeros((1, sentences)), effect]),
        "zero.lengths": np.ones(sentences, dtype=int),
        "zero.right": -np.concatenate([np.zeros((1, len(row))), margin]),
        "zero.wrong": np.zeros((count + 1, len(row))),
    }
    shuffled = random.permutation(count)[:, None] * np.ones(len(row))
    return {"loss": -effect.T, "margin": shuffled.T, **labels}, zero | labels


def test_a_proxy_that_is_the_truth_correlates_and_a_shuffled_one_does_not():
    gradients, ablated = planted()
    found = guide(gradients, ablated, draws=200)
    assert found.columns == ("loss", "order")
    assert found.effect == pytest.approx(np.repeat(np.arange(8)[:, None], 2, axis=1), abs=0.1)
    assert found.first_order[:, 0] == pytest.approx(np.arange(8), abs=0.1)
    assert found.rank[:, 0].tolist() == [1, 1]
    assert found.low[1, 0] > 0.9
    assert abs(found.rank[1, 1]) < 0.8


@pytest.mark.medium
@pytest.mark.filterwarnings("error")
def test_equal_effects_have_no_rank_correlation():
    gradients, ablated = planted()
    ablated["zero.right"] = np.zeros_like(ablated["zero.right"])
    found = guide(gradients, ablated, draws=20)
    assert np.isnan([found.rank[:, 1], found.low[:, 1], found.high[:, 1]]).all()
    assert np.isfinite([found.rank[:, 0], found.low[:, 0], found.high[:, 0]]).all()
    parts = {"importance": gradients, "ablation": ablated}
    section = subject(Results("a", Path("a"), ("en", "de"), parts, BOUNDS)).section
    assert section.blocks[-1].cells[1] == ("order", "–", "–", "–", "–")
