"""Attention: the contract of its kinds, and softmax attention over scores of queries against keys.

Notation, here and everywhere: `batch`, `query`, `key`, `head`, `d_model`, `d_head`. Tensors are batch-first. One mask
convention: True = may attend.

The maths is in an `Attend`: `attend(query, key, value, mask, positions, state) -> (output, weights, state)` on tensors
that are already split into heads. `multi_head.py` projects, splits and merges around any of them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headcount.model.dropout import Dropout

Query = Float[Tensor, "batch head query d_head"]
Key = Float[Tensor, "batch head key d_head"]
Mask = Bool[Tensor, "#batch #head #query #key"] | None
"""None: every query may attend to every key."""
PLAIN = ("cpu",)  # devices where plain products are faster than torch's kernels, which are made for long sequences

VECTOR = 16  # float32 numbers in the widest vector register: torch's softmax over shorter rows takes ten times as long


class TokenPositions(NamedTuple):
    """Positions of the queries [query] and of the keys [key] in their sentences, counted from 0.

    query: one number is the position of all queries, as for the beams of a sentence. step: in search, that position as
    a number; None in training. causal: the mask hides exactly the keys at later positions than the query's.
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
    state: Tensor | None


class Attend(nn.Module):
    """The contract of a kind of attention, in self-attention and cross-attention alike.

    gain: factor on the initial weights of the projections of queries and keys. reads_keys: whether the output depends
    on the keys; if not, `key` is `value`, and no keys are projected.

    state: None in training. In search, the queries are the beams of a sentence at one target position, and the state is
    first `begin(rows)`, then the state of the output before: one row for each beam of each sentence.
    """

    gain: float = 1.0
    reads_keys: bool = True

    def begin(self, rows: int) -> Tensor | None:
        """The state [row, ...] before the first target position; None for a kind without a state."""
        return None


AttendFactory = Callable[..., Attend]
"""Builds an `Attend` from the keywords num_heads, d_head and dropout."""


class SoftmaxAttention(Attend):
    """Softmax over the scores of all keys, then the weighted sum of the values; kinds differ in `score` and `scale`.

    scale: factor on the scores. is_dot: the score is a plain dot product, for which torch has kernels on a GPU.
    """

    scale: float = 1.0
    is_dot: bool = False

    def __init__(self, *, num_heads: int, d_head: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.d_head = d_head
        self.dropout = Dropout(dropout)

    def score(self, query: Query, key: Key) -> Tensor:
        """Score of each query against each key, [batch, head, query, key], before it is scaled."""
        return query @ key.transpose(-2, -1)

    def forward(
        self, query: Query, key: Key, value: Key, mask: Mask, positions: TokenPositions, state: Any, need_weights: bool
    ) -> AttentionOutput:
        if self.is_dot and self.num_heads and not need_weights and query.device.type not in PLAIN:
            # SDPA's dropout acts in eval mode too. A mask would rule out the fastest of its kernels.
            dropout, mask = self.dropout.p if self.training else 0.0, None if positions.causal else mask
            given = (query, key, value, mask, dropout, positions.causal)
            return AttentionOutput(F.scaled_dot_product_attention(*given, scale=self.scale), None, None)
        score = self.score(query, key)
        score = score.to(torch.promote_types(score.dtype, torch.float32))
        # One addition, which is faster than a product and masked_fill.
        bias = torch.zeros((), device=score.device) if mask is None else torch.where(mask, 0.0, float("-inf"))
        score = torch.add(bias, score, alpha=self.scale)
        keys, padded = score.shape[-1], self.training and not torch.compiler.is_compiling()
        if padded and score.device.type in PLAIN and keys < VECTOR:
            score = F.pad(score, (0, VECTOR - keys), value=float("-inf"))
        weights = score.softmax(dim=-1)[..., :keys]
        output = self.dropout(weights.to(value.dtype)) @ value
        return AttentionOutput(output, weights if need_weights else None, None)


class ScaledDotProduct(SoftmaxAttention):
    """softmax(q k / sqrt(d_head)) v: Vaswani et al. 2017, "Attention is all you need", equation 1."""

    is_dot = True

    def __init__(self, *, num_heads: int, d_head: int, dropout: float) -> None:
        super().__init__(num_heads=num_heads, d_head=d_head, dropout=dropout)
        self.scale = d_head**-0.5
