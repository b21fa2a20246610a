"""Multi-head attention: queries, keys and values projected and split into heads, the heads gated and merged."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from headcount.model.attention import Attend, Attended, AttendFactory, Mask, ScaledDotProduct, begin
from headcount.model.cache import KeysValues
from headcount.model.positions import Rotate, unrotated


class RepeatedKeys(nn.Module):
    """Any `Attend`, where groups of heads share keys and values: each head gets a copy of its group's."""

    def __init__(self, attend: Attend) -> None:
        super().__init__()
        self.attend = attend

    def begin(self, rows: int) -> Any:
        return begin(self.attend, rows)

    def forward(
        self,
        query: Float[Tensor, "batch head query d_head"],
        key: Float[Tensor, "batch kv_head key d_head"],
        value: Float[Tensor, "batch kv_head key d_head"],
        mask: Mask | None,
        state: Any,
        need_weights: bool,
    ) -> Attended:
        group = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(group, dim=1) for x in (key, value))
        return self.attend(query, key, value, mask, state, need_weights)


class FoldedQueries(nn.Module):
    """The same for an `Attend` that treats all heads alike: no copy, since the queries of a group can be more queries
    of one head."""

    def __init__(self, attend: Attend) -> None:
        super().__init__()
        self.attend = attend

    def forward(
        self,
        query: Float[Tensor, "batch head query d_head"],
        key: Float[Tensor, "batch kv_head key d_head"],
        value: Float[Tensor, "batch kv_head key d_head"],
        mask: Mask | None,
        state: None,
        need_weights: bool,
    ) -> Attended:
        heads, queries = query.shape[1:3]
        group = heads // key.shape[1]
        query = query.unflatten(1, (-1, group)).flatten(2, 3)
        if mask is not None and mask.shape[1:3] != (1, 1):
            mask = mask.expand(-1, group if mask.shape[1] == 1 else heads, queries, -1)
            mask = mask.unflatten(1, (-1, group)).flatten(2, 3)
        output, weights, state = self.attend(query, key, value, mask, state, need_weights)

        def unfold(x: Tensor) -> Tensor:
            return x.unflatten(2, (group, queries)).flatten(1, 2)

        return Attended(unfold(output), None if weights is None else unfold(weights), state)


class MultiHeadAttention(nn.Module):
    """Several heads side by side: Vaswani et al. 2017, section 3.2.2.

    concat(head_1 .. head_h) W_O with head_i = gate_i * attend(q W_Qi, k W_Ki, v W_Vi)

    `head_gate` [head] (or [batch, head], many settings in one pass) multiplies each head's output before W_O: Michel et
    al. 2019, "Are sixteen heads really better than one?", equation 2. It is ones unless somebody studies the heads: a
    zero masks a head, the gradient at one is its importance.

    kv_heads: heads of keys and values, each shared by as many neighbouring heads of queries: Ainslie et al. 2023, "GQA:
    training generalized multi-query Transformer models"; one is the multi-query attention of Shazeer 2019, "Fast
    Transformer decoding". None: as many as heads. A divisor of num_heads.
    rotate: turns queries and keys by their positions.
    """

    head_gate: Tensor

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        head_size: int,
        attend: AttendFactory,
        dropout: float,
        kv_heads: int | None = None,
        rotate: Rotate = unrotated,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.kv_heads = kv_heads or num_heads
        self.head_size = head_size
        self.query = nn.Linear(d_model, num_heads * head_size)
        self.attend = attend(num_heads=num_heads, d_head=head_size, dropout=dropout)
        self.gain: float = getattr(self.attend, "gain", 1.0)
        # Where no key is read there are none: weights that never learn would make several processes wait for gradients.
        reads_keys = getattr(self.attend, "reads_keys", True)
        self.key = nn.Linear(d_model, self.kv_heads * head_size) if reads_keys else None
        self.value = nn.Linear(d_model, self.kv_heads * head_size)
        self.output = nn.Linear(num_heads * head_size, d_model)
        self.rotate = rotate
        if self.kv_heads < num_heads:
            # A kind of its own, derived from this one, may give each head weights of its own.
            alike = type(self.attend) is ScaledDotProduct
            self.attend = FoldedQueries(self.attend) if alike else RepeatedKeys(self.attend)
        self.register_buffer("head_gate", torch.ones(num_heads), persistent=False)

    @torch.no_grad()
    def apply_gain(self) -> None:
        """Multiply the weights that make queries and keys, newly drawn, by what the score asks for."""
        for projection in (self.query, self.key):
            for weights in projection.parameters() if projection is not None else ():
                weights.mul_(self.gain)

    def project(self, context: Float[Tensor, "batch key d_model"], position: int | None = None) -> KeysValues:
        """Keys and values of the positions that can be looked at; `position` as in `forward`."""
        value = self._split(self.value(context))
        key = value if self.key is None else self.rotate(self._split(self.key(context)), position)
        return KeysValues(key, value)

    def forward(
        self,
        x: Float[Tensor, "batch query d_model"],
        context: KeysValues,
        mask: Mask | None = None,
        state: Any = None,
        need_weights: bool = False,
        position: int | None = None,
    ) -> Attended:
        """Output [batch, query, d_model] of x looking at `context` where `mask` is True; the rest as in `Attended`.

        position: where all of x stands, for a rotation; None: at 0, 1, 2 and so on.
        """
        query = self.rotate(self._split(self.query(x)), position)
        heads, weights, state = self.attend(query, context.key, context.value, mask, state, need_weights)
        weight = self.output.weight
        if self.head_gate.dim() == 1:
            # The same factors in W_O, which is smaller than the heads.
            weight = weight * self.head_gate.repeat_interleave(self.head_size)
        else:
            heads = heads * self.head_gate[..., None, None]
        return Attended(F.linear(heads.transpose(1, 2).flatten(2), weight, self.output.bias), weights, state)

    def _split(self, x: Tensor) -> Tensor:
        # [batch, position, head * d_head] -> [batch, head, position, d_head]
        return x.unflatten(2, (-1, self.head_size)).transpose(1, 2)
