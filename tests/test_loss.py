"""The fused loss against torch's, and the schedule, dropout and averages."""

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from headcount.model.dropout import Dropout
from headcount.training import loss as loss_module
from headcount.training.averaging import CheckpointAverage, mean_weights
from headcount.training.loss import LabelSmoothing
from headcount.training.schedule import InverseSquareRoot


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_loss_and_gradients_are_those_of_cross_entropy(smoothing, chunk, monkeypatch):
    monkeypatch.setitem(loss_module.CHUNK, "cpu", chunk)
    torch.manual_seed(0)
    hidden = torch.randn(20, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 6, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 11, (20,))
    loss, likelihood = LabelSmoothing(smoothing)(hidden, weight, labels)
    ours = torch.autograd.grad(loss * 0.3, [hidden, weight])
    logits = hidden @ weight.T
    expected = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")
    theirs = torch.autograd.grad(expected * 0.3, [hidden, weight])
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(likelihood, F.cross_entropy(logits, labels, reduction="sum").detach())
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    assert not likelihood.requires_grad


def test_smoothing_out_of_range_is_named():
    with pytest.raises(ValueError, match=r"loss\.smoothing=1"):
        LabelSmoothing(1.0)


def test_dropout_drops_as_asked_and_keeps_the_mean():
    torch.manual_seed(0)
    dropout = Dropout(0.3)
    out = dropout(torch.ones(1001, 999))
    assert (out == 0).double().mean().item() == pytest.approx(0.3, abs=0.003)
    assert out.mean().item() == pytest.approx(1, abs=0.003)
    # Bytes of one word must not go together: neighbours, and elements eight apart, are dropped independently.
    dropped = (out == 0).double().flatten() - (out == 0).double().mean()
    for distance in (1, 7, 8, 9, 64):
        assert (dropped[:-distance] * dropped[distance:]).mean().abs() < 0.001


def test_dropout_rests_in_evaluation_and_repeats_with_the_seed():
    dropout = Dropout(0.5)
    x = torch.randn(33, 5)
    torch.manual_seed(7)
    first = dropout(x)
    torch.manual_seed(7)
    assert torch.equal(first, dropout(x))
    assert not torch.equal(first, dropout(x))
    assert torch.equal(dropout.eval()(x), x)


def test_dropout_has_the_gradient_of_its_mask():
    x = torch.ones(1000, requires_grad=True)
    out = Dropout(0.25)(x)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


def test_inverse_square_root_by_hand():
    factor = InverseSquareRoot(warmup_steps=4)
    assert [factor(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert factor(15) == 0.5
    assert factor(399) == 0.1
    with pytest.raises(ValueError, match=r"schedule\.warmup_steps=0"):
        InverseSquareRoot(0)


def test_the_mean_is_of_the_last_snapshots_and_the_weights_of_now(tmp_path):
    average = CheckpointAverage(last=2, every=10)
    average.directory = tmp_path
    for step in (10, 20, 30):
        save_file({"weight": torch.full((2, 1), float(step))}, tmp_path / f"{step:08d}.safetensors")
    model = torch.nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        model.weight.fill_(50.0)
    assert average.weights(model, 20)["weight"].flatten().tolist() == [15, 15]
    assert average.weights(model, 35)["weight"].flatten().tolist() == [40, 40]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000030.safetensors", "00000035.safetensors"]


def test_mean_weights_by_hand():
    mean = mean_weights([{"a": torch.tensor([1.0, 2.0])}, {"a": torch.tensor([3.0, 6.0])}])
    assert mean["a"].tolist() == [2, 4]
    assert mean["a"].dtype == torch.float32
