"""Gradient importance: gradients of gates are finite differences, a proxy that is the truth correlates perfectly."""

import numpy as np
import pytest
import torch
from built import ONE_LAYER, built
from scipy.stats import spearmanr

from headcount.data.batches import Sentences, collate
from headcount.heads.importance import (
    gate_gradients,
    guide,
    integrated_gradients,
    normalised_by_layer,
    patching_gradients,
    reliability,
    spearman,
)
from headcount.heads.interface import Heads
from headcount.heads.likelihood import batch_log_probs, token_log_probs

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


def test_integrated_gradients_add_up_to_the_loss_of_all_heads_less_that_of_none(heads, sentences):
    found = integrated_gradients(heads, *sentences)
    whole, empty = token_log_probs(heads, *sentences, torch.tensor([[1.0], [0.0]]).repeat(1, len(heads)).double()).sums
    assert abs(empty - whole).max() > 0.1
    assert found.sum(axis=1) == pytest.approx(empty - whole, abs=0.02 * abs(empty - whole).max())
    assert abs(found - gate_gradients(heads, *sentences)).max() > 0.02


def test_attribution_patching_is_the_slope_towards_the_twins_output(heads, sentences):
    """By a small step of one head from its own output to that for the twin."""
    source, target = sentences
    rows = np.arange(len(source.lengths))
    twin = Sentences.of([source.row(row)[::-1] + [5] * int(row == 0) for row in rows])
    found = patching_gradients(heads, source, twin, target)
    assert np.isnan(found[0, :2]).all()
    assert np.isfinite(found[1:]).all()
    assert np.isfinite(found[0, 2:]).all()
    for row in (0, 3):
        own, other = (collate(side, target, rows[row : row + 1], 0) for side in (source, twin))
        with torch.no_grad(), heads.recorded() as records:
            for batch in (own, other):
                heads.model(batch.source, batch.source_mask, batch.target_in)
        for number, head in enumerate(heads.names):
            if np.isnan(found[row, number]):
                continue
            here, there = (output[:, head.head - 1] for output in records[head.place])
            sums = []
            for step in (-0.02, 0.02):
                with torch.no_grad(), heads.patched({head: here + step * (there - here)}):
                    sums.append(float(batch_log_probs(heads, own).sum()))
            assert found[row, number] == pytest.approx((sums[1] - sums[0]) / 0.04, abs=2e-3)
    assert abs(found[3]).max() > 0.01


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


def test_importance_for_the_loss_and_for_a_phenomenon_are_two_figures():
    """The loss ranks heads as the margin of order does; the margin's own gradient has the order turned round."""
    gradients, ablated = planted()
    gradients["margin"] = -np.arange(8.0)[::-1] * np.ones((30, 1))
    gradients |= {"integrated": gradients["loss"], "integrated_margin": gradients["margin"]}
    gradients["patching"] = -gradients["margin"]
    patched = {"base": np.zeros(30), "patched": np.arange(8.0)[:, None] * np.ones(30)}
    found = guide(gradients, ablated, patched | {"phenomenon": ablated["phenomenon"]})
    # Spearman's correlation with the harm to the margin: of |dL|, of |dm|, of dm with its sign, integrated. That of
    # attribution patching is with what patching costs, which is most for the first head.
    assert found.rank[:, 1] == pytest.approx([1, -1, 1, 1, -1])
    assert np.isnan(guide(gradients, ablated).rank[-1]).all()
    assert found.rank[[0, 3], 0] == pytest.approx([1, 1])
    assert np.isnan(found.rank[1:3, 0]).all()  # of the loss, the signed mean is 0 at a minimum over the weights
    assert found.proxies["loss_importance"][7, 0] == pytest.approx(7, abs=0.1)
    assert found.proxies["integrated"][7] == pytest.approx([7, 0], abs=0.1)
    assert (found.proxies["margin_importance"][0, 1], found.proxies["margin_first_order"][0, 1]) == (7, -7)


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
