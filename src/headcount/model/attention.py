"""Attention: the contract of its kinds, and softmax attention over scores of queries against keys.

Notation, here and everywhere: `batch`, `query`, `key`, `head`, `d_model`, `d_head`. Tensors are batch-first. One mask
convention: True = may attend.

The maths is in an `Attend`: `attend(query, key, value, mask, positions, state) -> (output, weights, state)` on tensors
that are already split into heads. `multi_head.py` projects, splits and merges around any of them.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from headcount.model.dropout import dropout_mask
from headcount.model.short_attention import short_attention, supports

Query = Float[Tensor, "batch head query d_head"]
Key = Float[Tensor, "batch head key d_head"]
Scores = Float[Tensor, "batch head query key"]
Mask = Bool[Tensor, "#batch #head #query #key"] | None
"""None: every query may attend to every key. A mask is not written into after its first use: see `additive_mask`."""


class TokenPositions(NamedTuple):
    """Positions of the queries and the keys in their sentences, counted from 0: [query] and [key].

    A single position of the queries is the position of all of them. step: in search, that position as a number; None
    where queries and keys are whole sentences in order. causal: the mask hides exactly the keys at later
    positions than the query's.
    """

    query: Tensor
    key: Tensor
    step: int | None
    causal: bool = False


class AttentionOutput(NamedTuple):
    """Output [batch, head, query, d_head], of all heads merged [batch, query, d_model]; the weights [batch, head,
    query, key] if they were asked for, and the state for the next target position (None for a kind without one)."""

    output: Tensor
    weights: Tensor | None
    state: Any


@runtime_checkable
class Attend(Protocol):
    """The contract of a kind of attention, in self-attention and cross-attention alike. Derive from it.

    gain: factor on the initial weights of the projections of queries and keys. reads_keys: whether the output depends
    on the keys; if not, `key` is `value`, and no keys are projected.

    state: None if the queries are a whole sentence in order. In search, the queries are the hypotheses of a sentence at
    one target position, and the state is first `begin(rows)`, then the state of the output before; rows are
    sentence x hypothesis. `state.select(rows)` follows the hypotheses that search keeps.
    """

    gain: float = 1.0
    reads_keys: bool = True

    def begin(self, rows: int) -> Any:
        """The state of `rows` hypotheses before the first target position; None for a kind without a state."""
        return None

    def __call__(
        self, query: Query, key: Key, value: Key, mask: Mask, positions: TokenPositions, state: Any, need_weights: bool
    ) -> AttentionOutput: ...


AttendFactory = Callable[..., Attend]
"""Builds an `Attend` from the keywords num_heads, d_head and dropout."""


def named(setting: str, attend: AttendFactory) -> AttendFactory:
    """`attend`, whose ValueErrors begin with the setting that it comes from."""

    def make(**sizes: Any) -> Attend:
        try:
            return attend(**sizes)
        except ValueError as error:
            raise ValueError(f"{setting}.{error}") from error

    return make


class SoftmaxAttention(nn.Module, Attend):
    """Softmax over the scores of all keys, then the weighted sum of the values; kinds differ in `score` alone."""

    def __init__(self, *, num_heads: int, d_head: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.d_head = d_head
        self.dropout = dropout

    def score(self, query: Query, key: Key, positions: TokenPositions) -> Scores:
        """Score of each query against each key."""
        raise TypeError(f"{type(self).__name__} has no score")

    def forward(
        self, query: Query, key: Key, value: Key, mask: Mask, positions: TokenPositions, state: None, need_weights: bool
    ) -> AttentionOutput:
        score = self.score(query, key, positions)
        if mask is not None:
            score = score.masked_fill(~mask, float("-inf"))
        weights = score.softmax(dim=-1)
        output = F.dropout(weights, self.dropout, self.training).to(value.dtype) @ value
        return AttentionOutput(output, weights if need_weights else None, None)


class ScaledDotProduct(SoftmaxAttention):
    """softmax(q k / sqrt(d_head)) v: Vaswani et al. 2017, "Attention is all you need", equation 1."""

    def score(self, query: Query, key: Key, positions: TokenPositions) -> Scores:
        return query @ key.transpose(-2, -1) * self.d_head**-0.5

    def forward(
        self, query: Query, key: Key, value: Key, mask: Mask, positions: TokenPositions, state: None, need_weights: bool
    ) -> AttentionOutput:
        if need_weights:
            return super().forward(query, key, value, mask, positions, state, need_weights)
        # The same maths in fewer steps. SDPA's dropout_p would act in eval mode too, so it is switched here.
        dropout = self.dropout if self.training else 0.0
        # Without heads, a kernel of a GPU would divide by their number.
        if query.device.type == "cpu" or not query.shape[1]:
            return AttentionOutput(self._by_products(query, key, value, mask, dropout), None, None)
        mask = None if positions.causal else mask  # a mask would rule out the fastest of torch's kernels
        if self.training and supports(query, key, value, mask, dropout=dropout):
            output = short_attention(query, key, value, mask, positions.causal)
        else:
            output = F.scaled_dot_product_attention(query, key, value, mask, dropout, positions.causal)
        return AttentionOutput(output, None, None)

    def _by_products(self, query: Query, key: Key, value: Key, mask: Mask, dropout: float) -> Tensor:
        scale = self.d_head**-0.5
        if dropout or torch.is_grad_enabled():  # elsewhere autograd would only take time
            output: Tensor = _ShortSequences.apply(query, key, value, mask, scale, dropout)
            return output
        weights = _short_weights(query.flatten(0, 1), key.flatten(0, 1), mask, scale, query.shape[:2])
        return torch.bmm(weights, value.flatten(0, 1)).unflatten(0, query.shape[:2])


VECTOR = 16  # float32 numbers in the widest vector register: torch's softmax is ten times slower on shorter rows


class _MaskCache(threading.local):
    """The last two masks and their `additive_mask`: layers share a mask for self-attention and one for cross-attention.
    Layers with local heads make masks of their own, which are not found again."""

    def __init__(self) -> None:
        self.pairs: deque[tuple[Tensor, Tensor]] = deque(maxlen=2)


_mask_cache = _MaskCache()


def additive_mask(mask: Bool[Tensor, "#batch #head #query #key"], dtype: torch.dtype) -> Tensor:
    """0 where `mask` is True, and -inf where it is False: to add to scores, which is faster than masked_fill."""
    if not torch.compiler.is_compiling():
        for known, additive in _mask_cache.pairs:
            if known is mask and additive.dtype == dtype:
                return additive
    additive = torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, float("-inf"))
    if not torch.compiler.is_compiling():
        _mask_cache.pairs.append((mask, additive))
    return additive


def _short_weights(
    query: Float[Tensor, "row query d_head"],
    key: Float[Tensor, "row key d_head"],
    mask: Tensor | None,
    scale: float,
    batch_and_heads: torch.Size,
) -> Float[Tensor, "row query key"]:
    """The weights of many short sentences: one product for all heads of all sentences, and a softmax over rows padded
    to whole vector registers, in float32 or better. batch_and_heads: [batch, head], whose product is `row`."""
    keys = key.shape[1]
    score = torch.bmm(query, key.transpose(1, 2))
    score = score.to(torch.promote_types(score.dtype, torch.float32)).mul_(scale)
    if mask is not None:
        score.unflatten(0, batch_and_heads).add_(additive_mask(mask, score.dtype))
    missing = -keys % VECTOR
    whole = F.pad(score, (0, missing), value=float("-inf")) if missing else score  # by 0, it would be copied
    return whole.softmax(dim=-1)[:, :, :keys].to(query.dtype)


class _ShortSequences(torch.autograd.Function):
    """Scaled dot-product attention for many short sentences on a CPU.

    torch's kernel for the CPU is made for long sequences: it has small products for one head at a time. Products are in
    the precision of the queries. The gradient is that of Dao et al. 2022, "FlashAttention", appendix B.2, with the
    weights kept.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, dropout: float
    ) -> Tensor:
        heads = query.shape[:2]
        query, key, value = query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1)
        weights = _short_weights(query, key, mask, scale, heads)
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
