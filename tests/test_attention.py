"""Attention: shapes, masks, dropout, and the fast path against the one that returns its weights.

test_heads and test_heads_prune have the gates of heads."""

import pytest
import torch

from headcount.model import attention as attention_module
from headcount.model.attention import AttendFactory, ScaledDotProduct, SoftmaxAttention, TokenPositions
from headcount.model.cache import KeysValues
from headcount.model.dropout import head_dropout_mask
from headcount.model.multi_head import HeadPlan, MultiHeadAttention


def make_attention(
    num_heads: int = 4, kv_heads: int | None = None, attend: AttendFactory = ScaledDotProduct
) -> MultiHeadAttention:
    torch.manual_seed(0)
    heads = HeadPlan(num_heads, 3, num_heads if kv_heads is None else kv_heads)
    return MultiHeadAttention(12, heads, attend, dropout=0.0).double().eval()


def whole(queries: int, keys: int) -> TokenPositions:
    """Positions of two whole sentences."""
    return TokenPositions(torch.arange(queries), torch.arange(keys), None)


def attended(attention: MultiHeadAttention, x: torch.Tensor, context: KeysValues, mask=None, need_weights=False):
    return attention(x, context, mask, whole(x.shape[1], context.key.shape[2]), None, need_weights)


def rows_of(heads: list[int]) -> list[int]:
    """Which rows of a projection are those of these heads, of size 3."""
    return [3 * head + i for head in heads for i in range(3)]


class OwnTemperature(SoftmaxAttention):
    """Heads that differ in more than what they are given, as those of additive attention do."""

    def score(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return super().score(query, key) * torch.arange(1.0, self.num_heads + 1)[:, None, None].double()


def random_mask(*shape: int) -> torch.Tensor:
    mask = torch.rand(shape) > 0.4
    mask[..., 0] = True  # a query that may look nowhere has no softmax
    return mask


@pytest.mark.parametrize("causal", [False, True])
def test_torchs_kernel_equals_the_path_that_shows_weights(causal, monkeypatch):
    """The kernel, which only an accelerator takes, takes part in a test on any device."""
    monkeypatch.setattr(attention_module, "PLAIN", ())
    attention = make_attention()
    x, context = torch.randn(2, 5, 12).double(), torch.randn(2, 5 if causal else 7, 12).double()
    keys = attention.project(context)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()[None, None] if causal else random_mask(2, 1, 5, 7)
    positions = whole(5, keys.key.shape[2])._replace(causal=causal)
    direction = torch.randn(2, 5, 12).double()
    fast, shown = (attention(x, keys, mask, positions, None, weights) for weights in (False, True))
    assert fast.weights is None
    torch.testing.assert_close(fast.output, shown.output, rtol=0, atol=1e-12)
    parameters = [attention.query.weight, attention.key.weight, attention.value.weight]
    gradients = [torch.autograd.grad(each.output, parameters, direction, retain_graph=True) for each in (fast, shown)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)
    assert shown.weights.shape == (2, 4, 5, keys.key.shape[2])
    torch.testing.assert_close(shown.weights.sum(-1), torch.ones(2, 4, 5).double())
    assert (shown.weights.masked_select(~mask.expand_as(shown.weights)) == 0).all()


def unit(x: torch.Tensor) -> torch.Tensor:
    """Queries or keys with a root mean square of one."""
    return x / x.square().mean(dim=-1, keepdim=True).sqrt()


@pytest.mark.parametrize("kind", ["fixed", "learned"])
def test_qk_norm_is_its_equation(kind):
    torch.manual_seed(0)
    plan = HeadPlan(2, 6, 2)
    attention = MultiHeadAttention(12, plan, ScaledDotProduct, 0.0, rotary=1, qk_norm=kind, qk_scale=1.5).double()
    scale = torch.tensor([1.5, 1.5]).double()
    if kind == "learned":
        attention.qk_norm.scale.data += torch.tensor([0.5, -0.5])
        scale += torch.tensor([0.5, -0.5])
    assert ("qk_norm.scale" in attention.state_dict()) == (kind == "learned")
    assert attention.qk_norm(torch.randn(1, 2, 3, 4).bfloat16()).dtype == torch.bfloat16  # of mixed precision
    x = torch.randn(3, 5, 12).double()
    query, key, value = (
        getattr(attention, name)(x).unflatten(2, (2, 6)).transpose(1, 2) for name in ("query", "key", "value")
    )
    scores = attention.rotate(unit(query), None) @ attention.rotate(unit(key), None).transpose(2, 3)
    weights = (scale[:, None, None] * scores / 6**0.5).softmax(-1)
    expected = attention.output((weights @ value).transpose(1, 2).flatten(2))
    found = attended(attention, x, attention.project(x))
    torch.testing.assert_close(found.output, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize(("kind", "size"), [("head", 1), ("element", 3)])
def test_an_output_gate_is_its_equation(kind, size, need_weights):
    torch.manual_seed(0)
    attention = MultiHeadAttention(12, HeadPlan(4, 3, 2), ScaledDotProduct, 0.0, output_gate=kind).double()
    weight = torch.randn(4 * size, 12).double()
    attention.output_gate.weight.data = weight
    attention.head_gate = torch.tensor([1.0, 0.0, 0.5, 2.0]).double()  # of the study of heads
    x, context = torch.randn(2, 5, 12).double(), torch.randn(2, 7, 12).double()
    query = attention.query(x).unflatten(2, (4, 3))
    key, value = (each(context).unflatten(2, (2, 3)) for each in (attention.key, attention.value))
    heads = []
    for head in range(4):
        weights = (query[:, :, head] @ key[:, :, head // 2].mT / 3**0.5).softmax(-1)
        gate = torch.sigmoid(x @ weight[head * size : (head + 1) * size].T)
        heads.append(attention.head_gate[head] * gate * (weights @ value[:, :, head // 2]))
    expected = attention.output(torch.cat(heads, dim=-1))
    found = attended(attention, x, attention.project(context), None, need_weights)
    torch.testing.assert_close(found.output, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize(("kv_heads", "group"), [(1, 4), (2, 2)])
@pytest.mark.parametrize("attend", [ScaledDotProduct, OwnTemperature])
def test_shared_keys_equal_keys_repeated_for_each_head(attend, kv_heads, group, need_weights):
    shared, full = make_attention(kv_heads=kv_heads, attend=attend), make_attention(attend=attend)
    assert shared.project(torch.randn(2, 7, 12).double()).key.shape == (2, kv_heads, 7, 3)
    repeated = rows_of([head // group for head in range(4)])
    with torch.no_grad():
        for name in ("query", "output"):
            getattr(full, name).load_state_dict(getattr(shared, name).state_dict())
        for name in ("key", "value"):
            getattr(full, name).weight.copy_(getattr(shared, name).weight[repeated])
            getattr(full, name).bias.copy_(getattr(shared, name).bias[repeated])
    x, context = torch.randn(2, 5, 12).double(), torch.randn(2, 7, 12).double()
    direction = torch.randn(2, 5, 12).double()
    # Which keys are real, who may see what, in a sentence or in all, each head for itself.
    for mask in (None, *(random_mask(*shape, 7) for shape in ((2, 1, 1), (1, 1, 5), (2, 1, 5), (2, 4, 5), (1, 4, 1)))):
        outcomes, gradients = [], []
        for attention in (shared, full):
            output, weights, _ = attended(attention, x, attention.project(context), mask, need_weights)
            assert (weights is not None) == need_weights
            outcomes.append([output, weights] if need_weights else [output])
            gradients.append(list(torch.autograd.grad(output, [*attention.parameters()], direction)))
        torch.testing.assert_close(*outcomes, rtol=0, atol=1e-12)
        for place, (name, _) in enumerate(full.named_parameters()):
            if name.startswith(("key", "value")):  # what each copy got, summed
                gradients[1][place] = gradients[1][place].unflatten(0, (kv_heads, group, 3)).sum(1).flatten(0, 1)
        torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("heads", "kv_heads", "p"), [(4, 4, 0.3), (4, 2, 0.9), (2, 1, 0.5), (1, 1, 0.5), (0, 0, 0.5)])
def test_dropped_heads_are_as_if_gated_and_the_others_are_scaled(heads, kv_heads, p):
    attention = make_attention(heads, kv_heads)
    attention.head_dropout = p
    attention.head_gate = torch.ones(heads).double()
    attention.head_gate[:1] = 0.5  # a gate of the study of heads acts as well
    x = torch.randn(50, 5, 12).double()
    context = attention.project(x)
    rested = attended(attention, x, context).output
    attention.train()
    torch.manual_seed(3)
    dropped = attended(attention, x, context).output
    torch.manual_seed(3)
    factors = head_dropout_mask(50, heads, p, x.device)
    kept = factors > 0
    assert kept.any(dim=1).all() or heads == 0
    torch.testing.assert_close(factors[kept], (heads / kept.sum(dim=1, keepdim=True)).expand_as(factors)[kept])
    assert bool((kept != kept[:1]).any()) == (heads > 1)  # each sentence has its own
    assert torch.allclose(dropped, rested) == (heads < 2)
    attention.eval()
    torch.testing.assert_close(attended(attention, x, context).output, rested)
    attention.head_gate = attention.head_gate * factors.double()
    torch.testing.assert_close(dropped, attended(attention, x, context).output)


def test_heads_are_dropped_with_the_probability_asked_for():
    torch.manual_seed(0)
    dropped = head_dropout_mask(20000, 8, 0.3, torch.device("cpu")) == 0
    assert dropped.double().mean().item() == pytest.approx(0.3, abs=0.01)
    last = head_dropout_mask(20000, 2, 0.99, torch.device("cpu")) > 0  # nearly always the one that is kept
    assert last.double().mean(dim=0).tolist() == pytest.approx([0.5, 0.5], abs=0.02)


def test_dropout_zeroes_weights_and_doubles_the_rest():
    """At a probability of a half; the weights that are kept are read off values that are the identity."""
    attend = ScaledDotProduct(num_heads=2, d_head=5, dropout=0.5).double().train()
    query, key = (torch.randn(2, 2, n, 5).double() for n in (4, 5))
    weights = (query @ key.transpose(2, 3) / 5**0.5).softmax(3)
    output = attend(query, key, torch.eye(5).double().expand(2, 2, 5, 5), None, whole(4, 5), None, False).output
    assert set((output / weights).round(decimals=9).unique().tolist()) == {0.0, 2.0}
