"""Attention: who may look where, how well a query fits a key, and the heads around it.

Notation, here and everywhere: `batch`, `query`, `key`, `head`, `d_model`, `d_head`. Tensors are batch-first. One mask
convention: True = may attend.

The maths lives in an `Attend`: `attend(query, key, value, mask, state) -> (output, weights, state)` on tensors already
split into heads. `MultiHeadAttention` projects, splits and merges around whichever one it is given.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from headcount.model.dropout import dropout_mask
from headcount.model.positions import Rotate, unrotated

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


class KeysValues(NamedTuple):
    """Projected keys and values, each [batch, kv_head, key, d_head]; what decoding keeps so as not to project twice."""

    key: Tensor
    value: Tensor

    def select(self, batch: Tensor) -> "KeysValues":
        return KeysValues(self.key.index_select(0, batch), self.value.index_select(0, batch))


class Cache:
    """Keys and values to which every step adds some, written in place.

    room: [2, batch, kv_head, key, d_head], keys and then values, as many as `length` and zeros behind; None before the
        first step. There is always room for a multiple of 32, and attention gets all of it: a part would have to be
        copied for each product. What is not yet filled, a mask must hide.
    """

    room: Tensor | None = None
    length = 0

    @staticmethod
    def size(length: int) -> int:
        """Keys that there is room for when there are `length`."""
        return -(-length // 32) * 32

    def append(self, new: KeysValues) -> KeysValues:
        """All so far and the new ones behind them, [batch, kv_head, size(length), d_head]."""
        begin, self.length = self.length, self.length + new.key.shape[2]
        if self.room is None or self.length > self.room.shape[3]:
            batch, heads, _, d_head = new.key.shape
            room = new.key.new_zeros(2, batch, heads, self.size(self.length), d_head)
            if self.room is not None:
                room[:, :, :, :begin] = self.room[:, :, :, :begin]
            self.room = room
        key, value = self.room
        key[:, :, begin : self.length], value[:, :, begin : self.length] = new
        return KeysValues(key, value)

    def select(self, batch: Tensor) -> None:
        """Keep these lines of the batch alone."""
        if self.room is not None:
            self.room = self.room.index_select(1, batch)


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
