"""Gradient importance: gradients of gates are finite differences, a proxy that is the truth correlates perfectly."""

from pathlib import Path

import numpy as np
import pytest
import torch
from built import BOUNDS, ONE_LAYER, built
from scipy.stats import spearmanr

from headcount.data.batches import Sentences
from headcount.heads.importance import PROXIES, gate_gradients, guide, normalised_by_layer, reliability, spearman
from headcount.heads.interface import Heads
from headcount.heads.likelihood import token_log_probs
from headcount.heads.results import Results
from headcount.heads.table import importance as rows_of

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
    found = guide(*planted())
    assert found.columns == ("loss", "order")
    assert found.effect == pytest.approx(np.repeat(np.arange(8)[:, None], 2, axis=1), abs=0.1)
    assert found.proxies["loss_importance"][:, 0] == pytest.approx(np.arange(8), abs=0.1)
    ranks = dict(zip(PROXIES, found.rank, strict=True))
    assert (ranks["loss_importance"][0], found.reliability.tolist()) == (1, [1, 1])
    assert abs(ranks["margin_first_order"][1]) < 0.8


def test_importance_for_the_loss_and_for_a_phenomenon_are_two_figures():
    """The loss ranks heads as the margin of order does; the margin's own gradient has the order turned round."""
    gradients, ablated = planted()
    gradients["margin"] = -np.arange(8.0)[::-1] * np.ones((30, 1))
    parts = {"importance": gradients, "ablation": ablated}
    rows = list(rows_of(Results("a", Path("a"), ("en", "de"), parts, BOUNDS)))
    ranks = {(row.endpoint, row.column): row.estimate for row in rows if row.head == "all heads"}
    # Spearman's correlation with the harm to the margin: of |dL|, of |dm|, and of dm with its sign.
    assert ranks["proxy.loss_importance.rank", "order"] == pytest.approx(1)
    assert ranks["proxy.margin_importance.rank", "order"] == pytest.approx(-1)
    assert ranks["proxy.margin_first_order.rank", "order"] == pytest.approx(1)
    values = {(row.endpoint, row.column, row.head): row.estimate for row in rows}
    assert values["proxy.loss_importance", "loss", "cross1.8"] == pytest.approx(7, abs=0.1)
    assert values["proxy.margin_importance", "order", "cross1.1"] == 7
    assert values["proxy.margin_first_order", "order", "cross1.1"] == -7
    # Of the loss, the signed mean is 0 at a minimum over the weights, so it is no proxy.
    assert {endpoint for endpoint, column, _ in values if column == "loss"} == {
        "proxy.loss_importance", "proxy.loss_importance.rank", "proxy.reliability"
    }  # fmt: skip


def test_reliability_is_the_rank_correlation_of_two_tests_of_the_same_length():
    random = np.random.default_rng(0)
    for noise in (1, 4):
        true = random.standard_normal(200)
        first, second = (true[:, None] + noise * random.standard_normal((200, 40)) for _ in range(2))
        expected = spearmanr(first.mean(axis=1), second.mean(axis=1)).statistic
        assert reliability(first) == pytest.approx(expected, abs=0.08)
    assert reliability(random.standard_normal((24, 40))) < 0.5
    assert np.isnan(reliability(np.ones((24, 40))))
    assert np.isnan(reliability(random.standard_normal((24, 1))))


@pytest.mark.medium
@pytest.mark.filterwarnings("error")
def test_equal_effects_have_no_rank_correlation():
    gradients, ablated = planted()
    ablated["zero.right"] = np.zeros_like(ablated["zero.right"])
    found = guide(gradients, ablated)
    assert np.isnan([*found.rank[:, 1], found.reliability[1]]).all()
    assert np.isfinite([found.rank[0, 0], found.reliability[0]]).all()
    parts = {"importance": gradients, "ablation": ablated}
    rows = rows_of(Results("a", Path("a"), ("en", "de"), parts, BOUNDS))
    assert "order" not in {row.column for row in rows if row.head == "all heads"}
