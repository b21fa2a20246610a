"""Score functions of attention from before the scaled dot-product: dot, general and additive.

Queries and keys are the projections of multi-head attention, as for the scaled dot-product: only the score differs.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from headcount.model.attention import Key, Query, Scores, SoftmaxAttention, TokenPositions


class LuongDot(SoftmaxAttention):
    """q k: Luong et al. 2015, "Effective approaches to attention-based neural machine translation", section 3.1, dot.

    The scaled dot-product without its scale: scores grow with d_head.

    gain: factor on the initial weights of the projections of queries and keys, above 0. None: d_head^(-1/4), so that
    the initial scores are those of the scaled dot-product. With 1, the initial softmax of a wide head puts nearly all
    weight on one key, and a model may not learn within its budget where to attend. Raises ValueError for a gain of 0 or
    less.
    """

    def __init__(self, *, num_heads: int, d_head: int, dropout: float, gain: float | None) -> None:
        super().__init__(num_heads=num_heads, d_head=d_head, dropout=dropout)
        if gain is not None and gain <= 0:
            raise ValueError(f"gain={gain}: must be more than 0, or null")
        self.gain = d_head**-0.25 if gain is None else gain

    def score(self, query: Query, key: Key, positions: TokenPositions) -> Scores:
        return query @ key.transpose(-2, -1)


class LuongGeneral(SoftmaxAttention):
    """q W k with a matrix W a head: Luong et al. 2015, section 3.1, general.

    Queries and keys are projections already, and W could be multiplied into either: the dot can learn the same scores
    with d_head x d_head weights less per head. But the two learn differently. W is kept as `weight` / sqrt(d_head), and
    `weight` is initially the identity: with a random W, or with updates as large as those of other matrices, a model
    may not learn within its budget where to attend.
    """

    def __init__(self, *, num_heads: int, d_head: int, dropout: float) -> None:
        super().__init__(num_heads=num_heads, d_head=d_head, dropout=dropout)
        self.weight = nn.Parameter(torch.eye(d_head).repeat(num_heads, 1, 1))

    def score(self, query: Query, key: Key, positions: TokenPositions) -> Scores:
        # Not query @ weight, which would copy the weights for each sentence.
        return torch.einsum("bhqd,hde->bhqe", query, self.weight * self.d_head**-0.5) @ key.transpose(-2, -1)


class Additive(SoftmaxAttention):
    """v tanh(q + k) with a vector v a head: Bahdanau et al. 2015, "Neural machine translation by jointly learning to
    align and translate", appendix A.1.2, whose W s and U h are the projections q and k. Luong's concat is the same.
    """

    def __init__(self, *, num_heads: int, d_head: int, dropout: float) -> None:
        super().__init__(num_heads=num_heads, d_head=d_head, dropout=dropout)
        self.vector = nn.Parameter(torch.empty(num_heads, d_head).uniform_(-1, 1) * math.sqrt(3 / d_head))

    def score(self, query: Query, key: Key, positions: TokenPositions) -> Scores:
        scores: Tensor = _AdditiveScore.apply(query, key, self.vector)
        return scores


# Numbers of [batch, head, query, key, d_head] that the additive score holds at a time; on a CPU, as many as its cache
# holds.
AT_ONCE = {"cpu": 2**18}
AT_ONCE_ELSEWHERE = 2**24


class _AdditiveScore(torch.autograd.Function):
    """v tanh(q + k) for some queries at a time, recomputed in the backward pass: all queries at once would take d_head
    times the memory of the scores."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
        ctx.save_for_backward(query, key, vector)
        weighted = [
            torch.einsum("bhqkd,hd->bhqk", hidden, vector.to(hidden.dtype)) for hidden, _ in _hidden(query, key)
        ]
        return torch.cat(weighted, dim=2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, vector = ctx.saved_tensors
        exact = torch.promote_types(query.dtype, torch.float32)
        for_query, for_key = torch.empty_like(query), torch.zeros_like(key, dtype=exact)
        for_vector = torch.zeros_like(vector, dtype=exact)
        for hidden, rows in _hidden(query, key):
            part = gradient[:, :, rows].to(exact)
            for_vector += torch.einsum("bhqk,bhqkd->hd", part, hidden)
            # d tanh(x) = 1 - tanh(x)^2
            for_sum = torch.ops.aten.tanh_backward(part[..., None] * vector[:, None, None].to(exact), hidden)
            for_query[:, :, rows] = for_sum.sum(dim=3).to(query.dtype)
            for_key += for_sum.sum(dim=2)
        return for_query, for_key.to(key.dtype), for_vector.to(vector.dtype)


def _hidden(query: Tensor, key: Tensor) -> Iterator[tuple[Tensor, slice]]:
    """tanh(q + k) [batch, head, rows, key, d_head] for a few rows of queries at a time, and these rows."""
    exact = torch.promote_types(query.dtype, torch.float32)
    step = max(1, AT_ONCE.get(key.device.type, AT_ONCE_ELSEWHERE) // max(key.numel(), 1))
    for start in range(0, query.shape[2], step):
        rows = slice(start, start + step)
        yield (query[:, :, rows, None].to(exact) + key[:, :, None].to(exact)).tanh_(), rows
