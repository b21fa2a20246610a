"""Attention: who may look where, and how well a query fits a key.

Notation, here and everywhere: `batch`, `query`, `key`, `head`, `d_model`, `d_head`. Tensors are batch-first. One mask
convention: True = may attend.

The maths lives in an `Attend`: `attend(query, key, value, mask, state) -> (output, weights, state)` on tensors already
split into heads. `multi_head.py` projects, splits and merges around whichever one it is given.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from headcount.model.dropout import dropout_mask

Heads = Float[Tensor, "batch head key d_head"]
Mask = Bool[Tensor, "#batch #head #query key"]


class Attended(NamedTuple):
    """What attention gives back: output [batch, head, query, d_head], the weights [batch, head, query, key] if they
    were asked for, and the state to hand in at the next target position (None where the kind has none)."""

    output: Tensor
    weights: Tensor | None
    state: Any


@runtime_checkable
class Attend(Protocol):
    """The seam between kinds of attention. `state` is None where the queries are all of a target, in order. In search
    they are hypotheses side by side, and it is what `begin(rows)` gave, if there is that, and then whatever was
    returned; it has `select(rows)`, for when hypotheses change places. A kind with `reads_keys = False` gets the values
    as its keys."""

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, state: Any, need_weights: bool
    ) -> Attended: ...


AttendFactory = Callable[..., Attend]
"""Builds an `Attend` from the keywords num_heads, d_head and dropout."""


def begin(attend: Attend, rows: int) -> Any:
    """The state of so many hypotheses before the first position; None for a kind without one."""
    return attend.begin(rows) if hasattr(attend, "begin") else None


class SoftmaxAttention(nn.Module):
    """Softmax over the scores of all keys, then the weighted sum of the values; kinds differ in `score` alone."""

    def __init__(self, num_heads: int, d_head: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.d_head = d_head
        self.dropout = dropout

    def score(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores [batch, head, query, key] of query [.., query, d_head] against key [.., key, d_head]."""
        raise TypeError(f"{type(self).__name__} does not say how it scores a query against a key")

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, state: None, need_weights: bool
    ) -> Attended:
        score = self.score(query, key)
        if mask is not None:
            score = score.masked_fill(~mask, float("-inf"))
        weights = score.softmax(dim=-1)
        output = F.dropout(weights, self.dropout, self.training).to(value.dtype) @ value
        return Attended(output, weights if need_weights else None, None)


class ScaledDotProduct(SoftmaxAttention):
    """softmax(q k / sqrt(d_head)) v: Vaswani et al. 2017, "Attention is all you need", equation 1."""

    def score(
        self, query: Float[Tensor, "batch head query d_head"], key: Heads
    ) -> Float[Tensor, "batch head query key"]:
        return query @ key.transpose(-2, -1) * self.d_head**-0.5

    def forward(
        self,
        query: Float[Tensor, "batch head query d_head"],
        key: Heads,
        value: Heads,
        mask: Mask | None,
        state: None,
        need_weights: bool,
    ) -> Attended:
        if need_weights:
            return super().forward(query, key, value, mask, state, need_weights)
        # The same maths in fewer steps. SDPA's dropout_p would act in eval mode too, so it is switched here.
        dropout = self.dropout if self.training else 0.0
        if query.device.type == "cpu":
            return Attended(_ManyShort.apply(query, key, value, mask, self.d_head**-0.5, dropout), None, None)
        return Attended(F.scaled_dot_product_attention(query, key, value, mask, dropout), None, None)


VECTOR = 16  # float32 numbers in the widest vector register: torch's softmax is ten times slower on shorter rows


class _ManyShort(torch.autograd.Function):
    """Scaled dot-product attention for a CPU and many short sentences: one product for all heads of all sentences,
    softmax over rows padded to whole vector registers, one product again.

    torch's own kernel is made for long sequences, with small products for one head at a time. Products are in the
    precision of the queries, softmax in float32 or better. The gradient is that of Dao et al. 2022, "FlashAttention",
    appendix B.2, with the weights kept.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, dropout: float
    ) -> Tensor:
        heads, keys = query.shape[:2], key.shape[2]
        query, key, value = query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1)
        score = torch.bmm(query, key.transpose(1, 2))
        score = score.to(torch.promote_types(score.dtype, torch.float32)).mul_(scale)
        if mask is not None:
            barred = torch.zeros_like(mask, dtype=score.dtype).masked_fill_(~mask, float("-inf"))
            score.unflatten(0, heads).add_(barred)
        whole = F.pad(score, (0, -keys % VECTOR), value=float("-inf"))
        weights = whole.softmax(dim=-1)[:, :, :keys].to(query.dtype)
        keep = dropout_mask(weights, dropout) if dropout else None
        ctx.save_for_backward(query, key, value, weights, keep)
        ctx.scale = scale
        return torch.bmm(weights if keep is None else weights * keep, value).unflatten(0, heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, weights, keep = ctx.saved_tensors
        heads = gradient.shape[:2]
        gradient = gradient.flatten(0, 1)
        dropped = weights if keep is None else weights * keep
        for_value = torch.bmm(dropped.transpose(1, 2), gradient)
        # d softmax: w (g - sum(w g)), where g is the gradient of the weights.
        for_score = torch.bmm(gradient, value.transpose(1, 2))
        for_score = for_score.to(torch.promote_types(for_score.dtype, torch.float32)).mul_(dropped)
        for_score -= weights * for_score.sum(dim=-1, keepdim=True)
        for_score = for_score.mul_(ctx.scale).to(query.dtype)
        for_query = torch.bmm(for_score, key)
        for_key = torch.bmm(for_score.transpose(1, 2), query)
        return *(x.unflatten(0, heads) for x in (for_query, for_key, for_value)), None, None, None
