"""The losses against torch's and their equations, token cutoff, and dropout."""

import pytest
import torch
import torch.nn.functional as F
from built import built, task_without_data
from test_synchronisation import a_batch

from headcount.data.tokenizer import BOS, EOS, PAD
from headcount.model.dropout import Dropout
from headcount.training import loss as loss_module
from headcount.training.loss import token_cutoff


def equation(name, hidden, weight, labels, smoothing, cap):
    """Loss and negative log-likelihood in torch's own ops."""
    logits = F.linear(hidden, weight)
    parts = (logits if cap is None else cap * torch.tanh(logits / cap)).chunk(1 if name == "label_smoothing" else 2)
    crossed = parts[: 1 if name == "simcut" else None]
    loss, likelihood = (
        sum(F.cross_entropy(each, labels, label_smoothing=s, reduction="sum") for each in crossed) / len(crossed)
        for s in (smoothing, 0.0)
    )
    if len(parts) == 2:
        p, q = (each.log_softmax(dim=1) for each in parts)
        there, back = (F.kl_div(b, a, log_target=True, reduction="sum") for a, b in ((p, q), (q, p)))
        loss = loss + (5 / 4 * (there + back) if name == "r_drop" else 3 * there)
    return loss, likelihood


@pytest.mark.parametrize("name", ["label_smoothing", "r_drop", "simcut"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize(("chunk", "cap"), [(1, None), (2, 3.0), (6, None), (7, 1.5), (100, None)])
def test_a_loss_and_its_gradients_are_those_of_its_equation(name, smoothing, chunk, cap, monkeypatch):
    monkeypatch.setitem(loss_module.CHUNK, "cpu", chunk)
    torch.manual_seed(0)
    hidden = torch.randn(20, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 6, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 11, (20 if name == "label_smoothing" else 10,))
    found = built(f"loss/{name}", smoothing=smoothing)(hidden, weight, labels, cap)
    expected = equation(name, hidden, weight, labels, smoothing, cap)
    torch.testing.assert_close(found, expected)
    ours, theirs = (torch.autograd.grad(each[0] * 0.3, [hidden, weight]) for each in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    assert not found[1].requires_grad


def gradients(loss, hidden, weight, autocast=True):
    inputs = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        return torch.autograd.grad(loss(*inputs)[0], inputs)


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


def rounded_first(hidden, weight, labels):
    """The gradients where p is rounded to bf16 before what is nearly as large is subtracted from it."""
    low, low_weight = hidden.bfloat16(), weight.bfloat16()
    p, target = (low @ low_weight.T).softmax(dim=1), 0.9 * F.one_hot(labels, len(weight)) + 0.1 / len(weight)
    return p @ low_weight - target @ weight, p.T @ low - target.T @ hidden


@pytest.mark.medium
@pytest.mark.parametrize("cap", [5.0, None], ids=["random", "confident"])
def test_gradients_in_mixed_precision_are_as_exact_as_under_autocast(cap):
    torch.manual_seed(0)
    weight, labels = torch.randn(1000, 64) / (4 if cap else 8), torch.randint(0, 1000, (200,))
    hidden = torch.randn(200, 64) if cap else near_the_optimum(weight, labels)
    ours = gradients(lambda *inputs: built("loss/label_smoothing")(*inputs, labels, cap), hidden, weight)
    plain = lambda *inputs: equation("label_smoothing", *inputs, labels, 0.1, cap)  # noqa: E731
    exact = gradients(plain, hidden.double(), weight.double(), autocast=False)
    others = gradients(plain, hidden, weight), rounded_first(hidden, weight, labels)
    for truth, one, other, rounded in zip(exact, ours, *others, strict=True):
        # Both round the same numbers to bf16 in another order, so that either may come out a little worse by chance.
        assert (one - truth).norm() <= (1.1 if cap else 1.02) * (other - truth).norm()
        assert cap or (one - truth).norm() <= 0.6 * (rounded - truth).norm()


@pytest.mark.parametrize("name", ["r_drop", "simcut"])
def test_before_its_start_a_loss_is_label_smoothing(name):
    loss = built(f"loss/{name}", start=3)
    assert (loss.at(2).passes, loss.at(2).p_cut, loss.at(2).smoothing) == (1, 0, loss.smoothing)
    assert loss.at(3) is loss.at(4) is loss


@pytest.mark.parametrize(("layer_dropout", "p_cut"), [(0.5, None), (0.0, 1 - 1e-7)])
def test_a_second_pass_leaves_out_other_layers_or_lacks_tokens(layer_dropout, p_cut):
    given = []

    def loss(hidden, weight, labels, cap):
        given.extend(hidden.chunk(2))

    loss.passes, loss.p_cut = 2, p_cut or 0.0
    sizes = {"d_model": 8, "d_feed_forward": 8, "num_heads": 2, "encoder_layers": 4, "decoder_layers": 4}
    torch.manual_seed(0)
    model = built("model/nano", vocab_size=12, **sizes, dropout=0.0, layer_dropout=layer_dropout)
    batch = a_batch("cpu", (3, 3))
    task_without_data(model)._losses(batch, loss)
    one, other = given
    assert not torch.allclose(one, other, atol=1e-2)
    if p_cut:
        inputs = batch.source, batch.source_mask, batch.target_in
        assert torch.allclose(one, model(*inputs).flatten(0, 1), atol=1e-6)
        with token_cutoff(model, p_cut):
            assert torch.allclose(other, model(*inputs).flatten(0, 1), atol=1e-6)


TOKENS = torch.tensor([[BOS, 5, 6, 7, EOS, PAD]]).repeat(400, 1)


@pytest.mark.parametrize("kind", ["nano", "rnn_luong"])
def test_token_cutoff_zeroes_whole_embeddings(kind):
    model = built(f"model/{kind}", vocab_size=12, tied_embeddings=False)
    torch.manual_seed(0)
    for embedding in (model.source_embedding, model.target_embedding):
        plain = embedding(TOKENS)
        with token_cutoff(model, 0.3):
            cut = embedding(TOKENS)
        lacks = (cut == 0).all(dim=2)
        assert torch.equal(cut[~lacks], plain[~lacks])  # nothing is scaled
        assert not lacks[:, [0, 4]].any()  # begin and end of sentence
        assert lacks[:, 1:4].double().mean().item() == pytest.approx(0.3, abs=0.04)
        assert torch.equal(embedding(TOKENS), plain)


@pytest.mark.parametrize(("p", "tolerance"), [(0.3, 0.003), (0.001, 2e-4), (0.0019, 3e-4), (0.999, 2e-4)])
def test_dropout_drops_as_asked_and_keeps_the_mean(p, tolerance):
    """Also a share that is too near to none or all for a byte."""
    torch.manual_seed(0)
    out = Dropout(p)(torch.ones(1001, 999))
    assert (out == 0).double().mean().item() == pytest.approx(p, abs=tolerance)
    assert out.max().item() == pytest.approx(1 / (1 - p), rel=0.01)
    # Bytes of one word must not go together: neighbours, and elements eight apart, are dropped independently.
    dropped = (out == 0).double().flatten() - (out == 0).double().mean()
    for distance in (1, 7, 8, 9, 64):
        assert (dropped[:-distance] * dropped[distance:]).mean().abs() < 0.001


def test_dropout_rests_in_evaluation_repeats_with_the_seed_and_has_the_gradient_of_its_mask():
    dropout = Dropout(0.5)
    x = torch.ones(1000, requires_grad=True)
    torch.manual_seed(7)
    first = dropout(x)
    first.sum().backward()
    assert torch.equal(x.grad, first.detach())
    torch.manual_seed(7)
    assert torch.equal(first, dropout(x))
    assert not torch.equal(first, dropout(x))
    assert torch.equal(dropout.eval()(x), x)
