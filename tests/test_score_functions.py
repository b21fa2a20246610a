"""Score functions of attention before the scaled dot-product, each against its equation."""

import math

import pytest
import torch
from built import built

from headcount.model import score_functions
from headcount.model.attention import ScaledDotProduct, TokenPositions
from headcount.model.attention_kinds import Additive, LuongGeneral

KINDS = ["scaled_dot", "luong_dot", "luong_general", "additive"]
WHOLE = TokenPositions(torch.arange(4), torch.arange(5), None)


def of(kind, heads=2, d_head=3):
    torch.manual_seed(0)
    attend = built(f"attention/{kind}")(num_heads=heads, d_head=d_head, dropout=0.0).double()
    for weights in attend.parameters():  # so that nothing is the identity, or alike in all heads
        torch.nn.init.normal_(weights)
    return attend


def given(heads=2, d_head=3):
    torch.manual_seed(1)
    query, key, value = (torch.randn(2, heads, length, d_head).double() for length in (4, 5, 5))
    mask = torch.rand(2, 1, 4, 5) > 0.3
    mask[..., 0] = True
    return query, key, value, mask


def one_score(attend, head, q, k):
    """The score of one query against one key, as the paper has it."""
    size = range(len(q))
    if isinstance(attend, LuongGeneral):
        return sum(q[i] * attend.weight[head, i, j] / math.sqrt(len(q)) * k[j] for i in size for j in size)
    if isinstance(attend, Additive):
        return sum(attend.vector[head, i] * math.tanh(q[i] + k[i]) for i in size)
    dot = sum(q[i] * k[i] for i in size)
    return dot / math.sqrt(len(q)) if isinstance(attend, ScaledDotProduct) else dot


@pytest.mark.parametrize("kind", KINDS)
def test_attention_is_its_equation(kind):
    attend, (query, key, value, mask) = of(kind).requires_grad_(False), given()
    output, weights, state = attend(query, key, value, mask, WHOLE, None, True)
    assert state is None
    for b in range(2):
        for h in range(2):
            for t in range(4):
                seen = [u for u in range(5) if mask[b, 0, t, u]]
                exps = {u: math.exp(one_score(attend, h, query[b, h, t], key[b, h, u])) for u in seen}
                expected = [exps.get(u, 0.0) / sum(exps.values()) for u in range(5)]
                assert weights[b, h, t].tolist() == pytest.approx(expected, abs=1e-9)
                context = [sum(expected[u] * float(value[b, h, u, i]) for u in range(5)) for i in range(3)]
                assert output[b, h, t].tolist() == pytest.approx(context, abs=1e-9)


@pytest.mark.medium
@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind):
    attend, (query, key, value, mask) = of(kind), given()
    names = [name for name, _ in attend.named_parameters()]

    def output(query, key, value, *parameters):
        own = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(attend, own, (query, key, value, mask, WHOLE, None, True))[0]

    inputs = [x.detach().requires_grad_() for x in (query, key, value, *attend.parameters())]
    assert torch.autograd.gradcheck(output, inputs)


def test_one_scaled_head_is_luongs_dot_up_to_the_scale():
    query, key, value, mask = given(heads=1)
    dot, scaled = of("luong_dot", heads=1), of("scaled_dot", heads=1)
    expected = scaled(query * math.sqrt(3), key, value, mask, WHOLE, None, True)
    for found, wanted in zip(dot(query, key, value, mask, WHOLE, None, True), expected, strict=True):
        torch.testing.assert_close(found, wanted)


def test_general_begins_as_the_scaled_dot():
    query, key, value, mask = given()
    sizes = {"num_heads": 2, "d_head": 3, "dropout": 0.0}
    expected = ScaledDotProduct(**sizes).double()(query, key, value, mask, WHOLE, None, True)
    found = LuongGeneral(**sizes).double()(query, key, value, mask, WHOLE, None, True)
    torch.testing.assert_close(found[:2], expected[:2])


@pytest.mark.parametrize("model", ["nano", "rnn_bahdanau"])
def test_a_model_with_luongs_dot_begins_as_with_the_scaled(model):
    def outputs(kind, **settings):
        torch.manual_seed(0)
        attend = built(f"attention/{kind}", **settings)
        sizes = {"vocab_size": 9, "d_model": 8, "num_heads": 2}
        built_model = built(f"model/{model}", **sizes, cross_attention=attend).double().eval()
        return built_model(torch.tensor([[4, 5, 6]]), torch.ones(1, 3).bool(), torch.tensor([[1, 7, 8]]))

    scaled = outputs("scaled_dot")
    torch.testing.assert_close(outputs("luong_dot"), scaled)
    assert (outputs("luong_dot", gain=1) - scaled).abs().max() > 1e-3


def test_no_gain_is_no_setting():
    wrong = built("attention/luong_dot", gain=0)
    for setting, model in (("self_attention", "nano"), ("cross_attention", "nano"), ("cross_attention", "rnn_luong")):
        with pytest.raises(ValueError, match=rf"model\.{setting}\.gain=0: must be more than 0, or null"):
            built(f"model/{model}", vocab_size=9, **{setting: wrong})


@pytest.mark.parametrize("at_once", [1, 100])
def test_some_queries_at_a_time_are_as_all_at_once(at_once, monkeypatch):
    attend, (query, key, _, _) = of("additive"), given()

    def all_of_it():
        inputs = [query.detach().requires_grad_(), key.detach().requires_grad_(), attend.vector]
        found = attend.score(*inputs[:2], WHOLE)
        return found, torch.autograd.grad((found * torch.arange(5)).sum(), inputs)

    whole = all_of_it()
    sizes = []
    hidden = score_functions._hidden
    monkeypatch.setitem(score_functions.AT_ONCE, "cpu", at_once)
    counted = lambda *x: ((sizes.append(part.numel()), (part, rows))[1] for part, rows in hidden(*x))  # noqa: E731
    monkeypatch.setattr(score_functions, "_hidden", counted)
    torch.testing.assert_close(all_of_it(), whole)
    assert max(sizes) <= max(at_once, key.numel())  # at least a query a time
    assert len(sizes) > 2


def test_half_precision_is_summed_in_single():
    attend = Additive(num_heads=1, d_head=256, dropout=0.0)
    torch.manual_seed(0)
    query, key = torch.randn(1, 1, 3, 256), torch.randn(1, 1, 4, 256)
    positions = TokenPositions(torch.arange(3), torch.arange(4), None)
    rounded = attend.score(query.bfloat16(), key.bfloat16(), positions)
    exact = attend.score(query.bfloat16().float(), key.bfloat16().float(), positions)
    torch.testing.assert_close(rounded.float(), exact, rtol=0, atol=1e-4)


def test_parameters_keep_the_order_in_which_checkpoints_number_them():
    model = built("model/rnn_bahdanau", vocab_size=9, d_model=4)
    names = [name for name, _ in model.attention.named_parameters()]
    assert names == [
        *("query.weight", "query.bias", "attend.vector", "key.weight", "key.bias"),
        *("value.weight", "value.bias", "output.weight", "output.bias"),
    ]
