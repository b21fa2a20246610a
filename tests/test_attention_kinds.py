"""Attention before the scaled dot-product: scores and the Gaussian window, each against its equation."""

import math
import re
from pathlib import Path

import pytest
import torch
from built import built

from headcount import settings
from headcount.model import attention_kinds
from headcount.model.attention import ScaledDotProduct, TokenPositions
from headcount.model.attention_kinds import Additive, GaussianWindow, LuongGeneral

KINDS = ["scaled_dot", "luong_dot", "luong_general", "additive"]
WHOLE = TokenPositions(torch.arange(4), torch.arange(5), None)


def of(kind, heads=2, d_head=3):
    torch.manual_seed(0)
    attend = built(f"attention/{kind}")(num_heads=heads, d_head=d_head, dropout=0.0).double()
    with torch.no_grad():  # so that nothing is the identity, or alike in all heads
        for weights in attend.parameters():
            weights.add_(0.5 * torch.randn_like(weights))
    return attend


def given(heads=2, d_head=3):
    torch.manual_seed(1)
    query, key, value = (torch.randn(2, heads, length, d_head).double() for length in (4, 5, 5))
    mask = torch.rand(2, 1, 4, 5) > 0.3
    mask[..., 0] = True
    return query, key, value, mask


def one_score(attend, head, q, k):
    """The score of one query against one key, as the paper has it."""
    if isinstance(attend, LuongGeneral):
        return q @ attend.weight[head] @ k / math.sqrt(len(q))
    if isinstance(attend, Additive):
        return attend.vector[head] @ torch.tanh(q + k)
    return q @ k / math.sqrt(len(q)) if isinstance(attend, ScaledDotProduct) else q @ k


def check_weights_and_output(found, b, h, t, expected, value):
    torch.testing.assert_close(found.weights[b, h, t], expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(found.output[b, h, t], expected @ value[b, h], rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_softmax_attention_is_its_equation(kind):
    attend, (query, key, value, mask) = of(kind).requires_grad_(False), given()
    found = attend(query, key, value, mask, WHOLE, None, True)
    assert found.state is None
    for b, h, t in torch.cartesian_prod(*map(torch.arange, (2, 2, 4))).tolist():
        scores = torch.stack([one_score(attend, h, query[b, h, t], k) for k in key[b, h]])
        expected = scores.masked_fill(~mask[b, 0, t], -math.inf).softmax(0)
        check_weights_and_output(found, b, h, t, expected, value)


def test_the_example_of_the_page_on_contributing_is_an_attention(monkeypatch):
    page = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.setitem(settings.KINDS, "attention", dict(settings.KINDS["attention"]))
    exec(compile(code, "CONTRIBUTING.md", "exec"), {"__name__": "cosine"})
    attend, (query, key, value, mask) = of("cosine").requires_grad_(False), given()
    found = attend(query, key, value, mask, WHOLE, None, True)
    for b, h, t in torch.cartesian_prod(*map(torch.arange, (2, 2, 4))).tolist():
        cosines = torch.cosine_similarity(query[b, h, t], key[b, h], dim=-1)
        scores = attend.sharpness[h, 0, 0] * cosines
        check_weights_and_output(found, b, h, t, scores.masked_fill(~mask[b, 0, t], -math.inf).softmax(0), value)


def test_the_window_is_its_recurrence():
    """Equations 46 to 51, a step at a time."""
    window, (query, key, value, mask) = of("gaussian_window").requires_grad_(False), given()
    found = window(query, key, value, mask, WHOLE, None, True)
    assert found.state is None
    for b, h in torch.cartesian_prod(torch.arange(2), torch.arange(2)).tolist():
        centres = torch.zeros(3)
        for t in range(4):
            sums = query[b, h, t] @ window.weight[h] / math.sqrt(3) + window.bias[h, 0]
            heights, widths, steps = sums.exp().chunk(3)
            centres = centres + steps
            of_each = [(heights * torch.exp(-widths * (centres - u) ** 2)).sum() for u in range(1, 6)]
            check_weights_and_output(found, b, h, t, torch.stack(of_each) * mask[b, 0, t], value)


@pytest.mark.parametrize("model", ["nano", "rnn_bahdanau"])
@pytest.mark.parametrize("kind", ["luong_dot", "luong_general"])
def test_a_model_with_luongs_scores_begins_as_with_the_scaled(kind, model):
    def outputs(kind, **settings):
        torch.manual_seed(0)
        attend = built(f"attention/{kind}", **settings)
        sizes = {"vocab_size": 9, "d_model": 8, "num_heads": 2}
        built_model = built(f"model/{model}", **sizes, cross_attention=attend).double().eval()
        return built_model(torch.tensor([[4, 5, 6]]), torch.ones(1, 3).bool(), torch.tensor([[1, 7, 8]]))

    torch.testing.assert_close(outputs(kind), outputs("scaled_dot"))
    if kind == "luong_dot":
        assert (outputs(kind, gain=1) - outputs("scaled_dot")).abs().max() > 1e-3


@pytest.mark.parametrize("at_once", [1, 25])
def test_some_queries_at_a_time_are_as_all_at_once(at_once, monkeypatch):
    attend, (query, key, _, _) = of("additive"), given()

    def all_of_it():
        inputs = [query.detach().requires_grad_(), key.detach().requires_grad_(), attend.vector]
        found = attend.score(*inputs[:2])
        return found, torch.autograd.grad((found * torch.arange(5)).sum(), inputs)

    expected = all_of_it()
    monkeypatch.setitem(attention_kinds.AT_ONCE, "cpu", at_once)
    torch.testing.assert_close(all_of_it(), expected)


def test_half_precision_is_summed_in_single():
    attend = Additive(num_heads=1, d_head=256, dropout=0.0)
    torch.manual_seed(0)
    query, key = torch.randn(1, 1, 3, 256), torch.randn(1, 1, 4, 256)
    rounded = attend.score(query.bfloat16(), key.bfloat16())
    exact = attend.score(query.bfloat16().float(), key.bfloat16().float())
    torch.testing.assert_close(rounded.float(), exact, rtol=0, atol=1e-4)


def test_parameters_keep_the_order_in_which_checkpoints_number_them():
    model = built("model/rnn_bahdanau", vocab_size=9, d_model=4)
    names = [name for name, _ in model.attention.named_parameters()]
    assert names == [
        *("query.weight", "query.bias", "attend.vector", "key.weight", "key.bias"),
        *("value.weight", "value.bias", "output.weight", "output.bias"),
    ]


def test_nothing_overflows():
    window, (query, key, value, mask) = of("gaussian_window").float(), given()
    query = (1e4 * query).float().requires_grad_()
    assert isinstance(window, GaussianWindow)
    output, _, _ = window(query, key.float(), value.float(), mask, WHOLE, None, True)
    output.sum().backward()
    for found in (output, query.grad, window.weight.grad, window.bias.grad):
        assert found.isfinite().all()
