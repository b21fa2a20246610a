"""Multi-head attention: queries, keys and values projected and split into heads, the heads gated and merged."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from headcount.model.attention import (
    Attend,
    AttendFactory,
    AttentionOutput,
    Mask,
    Query,
    ScaledDotProduct,
    TokenPositions,
)
from headcount.model.cache import KeysValues
from headcount.model.dropout import head_dropout_mask
from headcount.model.head_plan import HeadPlan, local_mask
from headcount.model.positions import Rotate, unrotated
from headcount.model.settings import check_choice, positive

KV = Float[Tensor, "batch kv_head key d_head"]
"""Keys or values that several heads share."""


class RepeatedKeys(nn.Module, Attend):
    """Shared keys and values for any `Attend`: each head gets a copy of those of its group."""

    def __init__(self, attend: Attend) -> None:
        super().__init__()
        self.attend = attend

    def begin(self, rows: int) -> Any:
        return self.attend.begin(rows)

    def forward(
        self, query: Query, key: KV, value: KV, mask: Mask, positions: TokenPositions, state: Any, need_weights: bool
    ) -> AttentionOutput:
        group = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(group, dim=1) for x in (key, value))
        return self.attend(query, key, value, mask, positions, state, need_weights)


class FoldedQueries(nn.Module, Attend):
    """Shared keys and values without copies, for the scaled dot-product, which treats all heads alike: the queries of a
    group become more queries of one head."""

    def __init__(self, attend: ScaledDotProduct) -> None:
        super().__init__()
        self.attend = attend

    def forward(
        self, query: Query, key: KV, value: KV, mask: Mask, positions: TokenPositions, state: None, need_weights: bool
    ) -> AttentionOutput:
        heads, queries = query.shape[1:3]
        group = heads // key.shape[1]
        query = query.unflatten(1, (-1, group)).flatten(2, 3)
        if mask is not None and mask.shape[1:3] != (1, 1):
            mask = mask.expand(-1, group if mask.shape[1] == 1 else heads, queries, -1)
            mask = mask.unflatten(1, (-1, group)).flatten(2, 3)
        positions = positions._replace(causal=False)  # queries are no longer in order
        output, weights, state = self.attend(query, key, value, mask, positions, state, need_weights)

        def unfold(x: Tensor) -> Tensor:
            return x.unflatten(2, (group, queries)).flatten(1, 2)

        return AttentionOutput(unfold(output), None if weights is None else unfold(weights), state)


class QueryKeyNorm(nn.Module):
    """QK-norm: the root mean square of each query and each key is one, without a gain; then the queries of a head are
    multiplied by its scale. Henry et al. 2020, "Query-key normalization for Transformers", with the L2 norm and a
    learned scale; Dehghani et al. 2023, "Scaling vision Transformers to 22 billion parameters", section 2.1.

    scale: of each head at first; kind "learned" trains one number a head, "fixed" none. Scores of the scaled
    dot-product are then scale sqrt(d_head) cos(q, k).

    Raises ValueError for another kind, or a scale that is not above 0.
    """

    scale: Tensor

    def __init__(self, heads: int, *, kind: str, scale: float) -> None:
        super().__init__()
        check_choice("qk_norm", kind, ("fixed", "learned"))
        start = torch.full((heads,), positive("qk_scale", scale))
        if kind == "learned":
            self.scale = nn.Parameter(start)
        else:
            self.register_buffer("scale", start, persistent=False)

    def forward(self, x: Float[Tensor, "batch head position d_head"]) -> Float[Tensor, "batch head position d_head"]:
        """Queries or keys, normalised."""
        return F.rms_norm(x, x.shape[-1:], eps=1e-6).to(x.dtype)  # mixed precision goes on in the narrower type

    def scaled(self, query: Query) -> Query:
        """Queries times the scale of their head."""
        return query * self.scale.to(query.dtype)[:, None, None]


class FusedProjection(NamedTuple):
    """Weights [projected, d_model] and biases [projected] of queries, keys and values, one below the other.

    projected: (heads + 2 kv_heads) x d_head, or (heads + kv_heads) x d_head for a kind that reads no keys. A step of
    search has few rows, for which one product is faster than three.
    """

    weight: Tensor
    bias: Tensor


class MultiHeadAttention(nn.Module):
    """Several heads side by side: Vaswani et al. 2017, section 3.2.2.

    concat(head_1 .. head_h) W_O with head_i = gate_i * attend(q W_Qi, k W_Ki, v W_Vi)

    `head_gate` [head] (or [batch, head], many settings in one pass) multiplies each head's output before W_O: Michel et
    al. 2019, "Are sixteen heads really better than one?", equation 2. A zero masks a head, and the gradient at one is
    the importance of the head. None, the default: nothing is multiplied.

    rotate: rotates queries and keys by their positions. qk_norm: builds a `QueryKeyNorm` from the number of
    heads; None: no norm. Both are without effect for a kind that reads no keys. head_dropout: see `head_dropout_mask`.
    """

    head_gate: Tensor | None

    def __init__(
        self,
        d_model: int,
        heads: HeadPlan,
        attend: AttendFactory,
        dropout: float,
        rotate: Rotate = unrotated,
        qk_norm: Callable[[int], QueryKeyNorm] | None = None,
        head_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.head_dropout = head_dropout
        self.query = projection(d_model, heads.count * heads.size)
        # Parameters keep their order: checkpoints number them, and rounding of the gradient's norm depends on it.
        self.attend = kind = attend(num_heads=heads.count, d_head=heads.size, dropout=dropout)
        self.kind = type(kind)  # of attention, however its heads share keys and values
        self.gain = kind.gain
        # No projection that no output depends on: several processes would wait for its gradients.
        self.key = projection(d_model, heads.kv * heads.size) if kind.reads_keys else None
        self.value = projection(d_model, heads.kv * heads.size)
        self.output = projection(heads.count * heads.size, d_model)
        self.rotate = rotate if kind.reads_keys else unrotated
        self.qk_norm = qk_norm(heads.count) if qk_norm and kind.reads_keys else None
        if heads.kv < heads.count:
            # A class derived from ScaledDotProduct may treat each head in its own way.
            self.attend = FoldedQueries(kind) if type(kind) is ScaledDotProduct else RepeatedKeys(kind)
        self.register_buffer("head_gate", None, persistent=False)

    @torch.no_grad()
    def apply_gain(self) -> None:
        """Multiply the initial weights of queries and keys by the gain of the `Attend`."""
        for projection in (self.query, self.key):
            for weights in projection.parameters() if projection is not None else ():
                weights.mul_(self.gain)

    def project(self, context: Float[Tensor, "batch key d_model"]) -> KeysValues:
        """Keys and values of `context`, whose positions are counted from 0."""
        value = self._split(self.value(context))
        key = value if self.key is None else self._placed(self._split(self.key(context)), None)
        return KeysValues(key, value)

    def fused(self) -> FusedProjection:
        """A copy of the projections of queries, keys and values, as one."""
        parts = [each for each in (self.query, self.key, self.value) if each is not None]
        return FusedProjection(torch.cat([each.weight for each in parts]), torch.cat([each.bias for each in parts]))

    def project_all(
        self, x: Float[Tensor, "batch position d_model"], fused: FusedProjection, step: int | None
    ) -> tuple[Query, KeysValues]:
        """Queries [batch, head, position, d_head], and keys and values [batch, kv_head, position, d_head], by one
        product; step: as in `TokenPositions`, for a rotation."""
        projected = self._split(F.linear(x, *fused))
        placed, value = projected.split([projected.shape[1] - self.heads.kv, self.heads.kv], dim=1)
        placed = self._placed(placed, step)  # queries and keys at once
        if self.key is None:
            return placed, KeysValues(value, value)
        query, key = placed.split([self.heads.count, self.heads.kv], dim=1)
        return query, KeysValues(key, value)

    def forward(
        self,
        x: Float[Tensor, "batch query d_model"],
        context: KeysValues,
        mask: Mask,
        positions: TokenPositions,
        state: Any = None,
        need_weights: bool = False,
        query: Query | None = None,
    ) -> AttentionOutput:
        """Output [batch, query, d_model] of queries x that attend to `context` where `mask` is True; weights and state
        as in `AttentionOutput`; query: x projected by `project_all`, or None."""
        query = self._placed(self._split(self.query(x)), positions.step) if query is None else query
        query = query if self.qk_norm is None else self.qk_norm.scaled(query)
        if self.heads.local:
            mask = local_mask(mask, self.heads, positions.query, positions.key)
            positions = positions._replace(causal=False)
        heads, weights, state = self.attend(query, *context, mask, positions, state, need_weights)
        gate = self.head_gate
        if self.training and self.head_dropout:
            kept = head_dropout_mask(len(x), self.heads.count, self.head_dropout, x.device)
            gate = kept if gate is None else gate * kept
        if gate is not None:
            heads = heads * gate[..., None, None]
        return AttentionOutput(self.output(heads.transpose(1, 2).flatten(2)), weights, state)

    def _placed(self, x: Tensor, step: int | None) -> Tensor:
        """Queries or keys, normalised and rotated."""
        return self.rotate(x if self.qk_norm is None else self.qk_norm(x), step)

    def _split(self, x: Tensor) -> Tensor:
        # [batch, position, head * d_head] -> [batch, head, position, d_head]
        return x.unflatten(2, (x.shape[2] // self.heads.size, self.heads.size)).transpose(1, 2)


def projection(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer; of a layer without heads it has no weights, and no inputs or no outputs."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Initializing zero-element tensors")
        return nn.Linear(inputs, outputs)
