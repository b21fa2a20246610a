"""The fused losses against torch's, and dropout."""

import pytest
import torch
import torch.nn.functional as F
from built import built

from headcount.model.dropout import Dropout
from headcount.training import loss as loss_module


def built_loss(alpha, smoothing=0.1):
    name, own = ("label_smoothing", {}) if alpha is None else ("r_drop", {"alpha": alpha})
    return built(f"loss/{name}", smoothing=smoothing, **own)


@pytest.mark.parametrize(("alpha", "smoothing"), [(None, 0.0), (None, 0.1), (None, 0.5), (0.5, 0.1), (5.0, 0.1)])
@pytest.mark.parametrize(("chunk", "cap"), [(1, None), (2, 3.0), (6, None), (7, None), (7, 1.5), (100, None)])
def test_loss_and_gradients_are_those_of_its_equation(alpha, smoothing, chunk, cap, monkeypatch):
    monkeypatch.setitem(loss_module.CHUNK, "cpu", chunk)
    torch.manual_seed(0)
    hidden = torch.randn(20, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 6, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 11, (20,)) if alpha is None else torch.randint(0, 11, (10,)).repeat(2)
    loss, likelihood = built_loss(alpha, smoothing)(hidden, weight, labels, cap)
    ours = torch.autograd.grad(loss * 0.3, [hidden, weight])
    expected = plain(labels, alpha, smoothing, cap)(hidden, weight)
    theirs = torch.autograd.grad(expected * 0.3, [hidden, weight])
    torch.testing.assert_close(loss, expected)
    expected_likelihood = plain(labels, None, 0.0, cap)(hidden, weight).detach()
    torch.testing.assert_close(likelihood, expected_likelihood / (1 if alpha is None else 2))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    assert not likelihood.requires_grad


def near_the_optimum(weight, labels, beyond=1.03):
    """Hidden states a little beyond those of the smallest loss at smoothing 0.1, where a gradient is a small rest."""
    hidden = (weight[labels] * 8).requires_grad_()
    optimizer = torch.optim.LBFGS([hidden], max_iter=100)

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(hidden @ weight.T, labels, label_smoothing=0.1, reduction="sum")
        loss.backward()
        return loss

    optimizer.step(closure)
    return hidden.detach() * beyond


def gradients(loss, hidden, weight, autocast=True):
    inputs = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        return torch.autograd.grad(loss(*inputs), inputs)


def plain(labels, alpha, smoothing=0.1, cap=None):
    """torch's own ops, which autocast runs in bf16 (the product) and float32 (the rest)."""

    def loss(hidden, weight):
        logits = F.linear(hidden, weight)
        logits = logits if cap is None else cap * torch.tanh(logits / cap)
        plain = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")
        if not alpha:
            return plain
        p, q = logits.log_softmax(dim=1).chunk(2)
        both = sum(F.kl_div(b, a, log_target=True, reduction="sum") for a, b in ((p, q), (q, p)))
        return plain / 2 + alpha / 4 * both

    return loss


def rounded_first(hidden, weight, labels, alpha):
    """The gradients where p is rounded to bf16 before what is nearly as large is subtracted from it."""
    low, low_weight = hidden.bfloat16(), weight.bfloat16()
    by_logits = (low @ low_weight.T).softmax(dim=1)
    target = 0.9 * F.one_hot(labels, len(weight)) + 0.1 / len(weight)
    if alpha:
        target = target / 2
        p, q = by_logits.chunk(2)
        d = p.log() - q.log()
        kl_p, kl_q = (p * d).sum(dim=1, keepdim=True), -(q * d).sum(dim=1, keepdim=True)
        by_difference = torch.cat([p * (d - kl_p) + p - q, q * (-d - kl_q) + q - p])
        by_logits = by_logits / 2 + alpha / 4 * by_difference
    return by_logits @ low_weight - target @ weight, by_logits.T @ low - target.T @ hidden


@pytest.mark.parametrize("alpha", [None, 5.0], ids=["label smoothing", "R-Drop"])
def test_capped_gradients_in_mixed_precision_are_as_exact_as_under_autocast(alpha):
    torch.manual_seed(0)
    hidden, weight, labels = torch.randn(200, 64), torch.randn(1000, 64) / 4, torch.randint(0, 1000, (100,)).repeat(2)
    exact = gradients(plain(labels, alpha, cap=5.0), hidden.double(), weight.double(), autocast=False)
    found = gradients(lambda hidden, weight: built_loss(alpha)(hidden, weight, labels, 5.0)[0], hidden, weight)
    autocast = gradients(plain(labels, alpha, cap=5.0), hidden, weight)
    for truth, ours, other in zip(exact, found, autocast, strict=True):
        assert (ours - truth).norm() <= 1.1 * (other - truth).norm()


@pytest.mark.medium
@pytest.mark.parametrize("alpha", [None, 5.0], ids=["label smoothing", "R-Drop"])
def test_gradients_of_confident_tokens_are_as_exact_as_under_autocast(alpha):
    torch.manual_seed(0)
    weight, labels = torch.randn(1000, 64) / 8, torch.randint(0, 1000, (200,))
    hidden = near_the_optimum(weight, labels)
    right = (hidden @ weight.T).softmax(dim=1).gather(1, labels[:, None])
    assert right.mean().item() == pytest.approx(0.91, abs=0.005)
    if alpha:
        hidden, labels = torch.cat([hidden, hidden + 0.1 * torch.randn_like(hidden)]), labels.repeat(2)
    exact = gradients(plain(labels, alpha), hidden.double(), weight.double(), autocast=False)
    found = gradients(lambda hidden, weight: built_loss(alpha)(hidden, weight, labels)[0], hidden, weight)
    autocast = gradients(plain(labels, alpha), hidden, weight)
    rounded = rounded_first(hidden, weight, labels, alpha)
    for truth, *gradient in zip(exact, found, autocast, rounded, strict=True):
        ours_error, autocast_error, rounded_error = ((each - truth).norm() for each in gradient)
        # Both round the same numbers to bf16 in another order, so that either may come out a little worse by chance.
        assert ours_error <= 1.02 * autocast_error
        assert ours_error <= (0.6 if alpha is None else 1) * rounded_error


def test_r_drop_of_two_equal_passes_is_label_smoothing():
    torch.manual_seed(0)
    hidden, weight, labels = torch.randn(9, 6), torch.randn(11, 6), torch.randint(0, 11, (9,))
    twice, likelihood = built("loss/r_drop", alpha=5.0)(hidden.repeat(2, 1), weight, labels.repeat(2))
    once = built("loss/label_smoothing", smoothing=0.1)(hidden, weight, labels)
    torch.testing.assert_close((twice, likelihood), once)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("chunk", "cap"), [(1, None), (2, None), (6, None), (7, None), (7, 1.5), (100, None)])
def test_simcut_and_its_gradients_are_those_of_its_equation(smoothing, chunk, cap, monkeypatch):
    monkeypatch.setitem(loss_module.CHUNK, "cpu", chunk)
    torch.manual_seed(0)
    hidden = torch.randn(20, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 6, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 11, (10,))
    loss, likelihood = built("loss/simcut", alpha=3.0, smoothing=smoothing)(hidden, weight, labels.repeat(2), cap)
    logits = hidden @ weight.T
    whole, cut = (logits if cap is None else cap * torch.tanh(logits / cap)).chunk(2)
    p, q = whole.softmax(dim=1), cut.softmax(dim=1)
    plain = F.cross_entropy(whole, labels, label_smoothing=smoothing, reduction="sum")
    expected = plain + 3 * (p * (p / q).log()).sum()  # no cross-entropy of the second pass, nothing detached
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(likelihood, F.cross_entropy(whole, labels, reduction="sum").detach())
    ours, theirs = (torch.autograd.grad(each * 0.3, [hidden, weight]) for each in (loss, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["r_drop", "simcut"])
def test_before_its_start_a_loss_is_label_smoothing(name):
    loss = built(f"loss/{name}", start=3)
    assert (loss.at(2).passes, loss.at(2).p_cut) == (1, 0)
    assert loss.at(2).smoothing == loss.smoothing
    assert loss.at(3) is loss.at(4) is loss
    assert built(f"loss/{name}").at(0).passes == 2


@pytest.mark.parametrize(
    ("loss", "setting", "value"),
    [
        ("label_smoothing", "smoothing", 1.0),
        ("r_drop", "smoothing", -0.1),
        ("r_drop", "alpha", 0.0),
        ("r_drop", "start", -1),
        ("simcut", "alpha", 0.0),
        ("simcut", "p_cut", 0.0),
        ("simcut", "p_cut", 1.0),
    ],
)
def test_settings_out_of_range_are_named(loss, setting, value):
    with pytest.raises(ValueError, match=rf"loss\.{setting}={value:g}"):
        built(f"loss/{loss}", **{setting: value})


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


@pytest.mark.parametrize(("p", "tolerance"), [(0.001, 2e-4), (0.0019, 3e-4), (0.999, 2e-4)])
def test_dropout_too_near_to_none_or_all_for_a_byte_is_what_was_asked_for(p, tolerance):
    torch.manual_seed(0)
    out = Dropout(p)(torch.ones(1000, 1000))
    assert (out == 0).double().mean().item() == pytest.approx(p, abs=tolerance)
    assert out.max().item() == pytest.approx(1 / (1 - p))
