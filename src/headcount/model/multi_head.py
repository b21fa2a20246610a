r"""Multi-head attention: queries, keys and values projected and split into heads, the heads gated and merged.

Heads of queries (q) that share a head of keys (k) and values (v), with four heads:

    multi-head, kv 4           grouped-query, kv 2           multi-query, kv 1

    v     v     v     v           v           v                      v
    k     k     k     k           k           k                      k
    |     |     |     |         /   \       /   \              /   /   \   \
    q     q     q     q        q     q     q     q          q     q     q     q
"""

import warnings
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from headcount.model.attention import AttendFactory, AttentionOutput, Mask, TokenPositions
from headcount.model.cache import KeysValues
from headcount.model.dropout import head_dropout_mask
from headcount.model.positions import Rotation
from headcount.model.settings import Heads


@dataclass(frozen=True)
class HeadPlan:
    """The heads of one attention.

    count: heads of queries; without any, 0, the layer adds the bias of the output projection alone. size: d_head. kv:
    heads of keys and values, each shared by `count / kv` neighbouring heads of queries: Ainslie et al. 2023, "GQA:
    training generalized multi-query Transformer models"; one is the multi-query attention of Shazeer 2019, "Fast
    Transformer decoding". local: the first heads, which attend to at most `window` positions to either side; the others
    attend to all.
    """

    count: int
    size: int
    kv: int
    local: int = 0
    window: int = 0


def plan_heads(
    name: str,
    heads: Heads | None,
    layers: int,
    *,
    num_heads: Heads,
    d_model: int,
    head_size: int | None,
    kv_heads: int | None = None,
    local: int = 0,
    window: int = 0,
) -> list[HeadPlan]:
    """The head plan of each layer of one kind of attention, whose setting `name` overrides num_heads unless it is None.

    head_size None: d_model / heads. kv_heads None: as many as heads.
    Raises ValueError for numbers that do not fit together: the setting, its value, what is allowed and the fix.
    """
    name, heads = ("num_heads", num_heads) if heads is None else (name, heads)
    per_layer = [heads] * layers if isinstance(heads, int) else list(heads)
    if len(per_layer) != layers:
        count = len(per_layer)
        raise ValueError(f"model.{name}={per_layer}: {count} numbers for {layers} layers; give one number, or {layers}")
    for count in per_layer:
        if count < (head_size is None):
            zero = "; 0, a layer without heads, needs model.head_size" if count == 0 else ""
            raise ValueError(f"model.{name}={count}: must be {0 if head_size else 1} or more{zero}")
        if head_size is None and d_model % count:
            fits = [n for n in range(1, d_model + 1) if d_model % n == 0]
            below, above = max(n for n in fits if n < count), min((n for n in fits if n > count), default=d_model)
            raise ValueError(
                f"model.{name}={count} does not divide model.d_model={d_model}: the nearest that do are {below} and "
                f"{above}; or fix the size of a head with model.head_size"
            )
        if kv_heads and count % kv_heads:
            raise ValueError(f"model.kv_heads={kv_heads}: must divide every number of heads, such as {count}; or null")
        if local > count:
            raise ValueError(f"model.local_heads={local}: must be 0 to {count}, the heads of a self-attention")
    return [
        HeadPlan(count, head_size or d_model // count, kv_heads if kv_heads and count else count, local, window)
        for count in per_layer
    ]


class QueryKeyNorm(nn.Module):
    """QK-norm: the root mean square of each query and each key is one, without a gain; then the queries of a head are
    multiplied by its scale. Henry et al. 2020, "Query-key normalization for Transformers", with the L2 norm and a
    learned scale; Dehghani et al. 2023, "Scaling vision Transformers to 22 billion parameters", section 2.1.

    scale: of each head at first; kind "learned" trains one number a head, "fixed" none. Scores of the scaled
    dot-product are then scale sqrt(d_head) cos(q, k).
    """

    scale: Tensor

    def __init__(self, heads: int, kind: str, scale: float) -> None:
        super().__init__()
        start = torch.full((heads,), float(scale))
        if kind == "learned":
            self.scale = nn.Parameter(start)
        else:
            self.register_buffer("scale", start, persistent=False)

    def forward(self, x: Float[Tensor, "batch head position d_head"]) -> Float[Tensor, "batch head position d_head"]:
        """Queries or keys, normalised."""
        return F.rms_norm(x, x.shape[-1:], eps=1e-6).to(x.dtype)  # mixed precision goes on in the narrower type


class OutputGate(nn.Linear):
    """Learnt gates of the outputs of heads, before the output projection: Qiu et al. 2025, "Gated attention for large
    language models", position G1.

    head_i sigmoid(x W_i), with x the input of the projection of queries

    kind "head": one number for each head and query; "element": one for each dimension of the output, too. W is 0 at
    first, so all gates are 1/2, about which those of the paper begin, whose W is random. No random number is drawn: all
    other initial weights are as without gates.
    """

    def __init__(self, d_model: int, heads: HeadPlan, kind: str) -> None:
        size = heads.size if kind == "element" else 1
        super().__init__(d_model, heads.count * size, bias=False)
        self.size = size

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)

    def gates(self, x: Float[Tensor, "batch query d_model"]) -> Float[Tensor, "batch head query size"]:
        """What the outputs of heads are multiplied by; size: 1 or d_head."""
        heads = self.out_features // self.size
        return super().forward(x).sigmoid().unflatten(2, (heads, self.size)).transpose(1, 2)

    def forward(  # type: ignore[override]
        self, query: Tensor, key: Tensor, value: Tensor, found: AttentionOutput, x: Tensor
    ) -> AttentionOutput:
        """What the heads found, gated. query, key, value: for hooks, see `headcount.heads.interface.Hook`."""
        return found._replace(output=found.output * self.gates(x))


class MultiHeadAttention(nn.Module):
    """Several heads side by side: Vaswani et al. 2017, section 3.2.2.

    concat(head_1 .. head_h) W_O with head_i = gate_i * attend(q W_Qi, k W_Ki, v W_Vi)

    `head_gate` [head] (or [batch, head], many settings in one pass) multiplies each head's output before W_O: Michel et
    al. 2019, "Are sixteen heads really better than one?", equation 2. A zero masks a head, and the gradient at one is
    the importance of the head. None, the default: nothing is multiplied.

    rotary: `max_positions` of the `Rotation` of queries and keys; None: no rotation. qk_norm, qk_scale: kind and scale
    of a `QueryKeyNorm`; None: no norm. output_gate: kind of the `OutputGate`; None: none. head_dropout: see
    `head_dropout_mask`.
    Raises ValueError for a rotation or a norm of keys that the kind does not read.
    """

    head_gate: Tensor | None

    def __init__(
        self,
        d_model: int,
        heads: HeadPlan,
        attend: AttendFactory,
        dropout: float,
        *,
        head_dropout: float = 0.0,
        rotary: int | None = None,
        qk_norm: str | None = None,
        qk_scale: float = 1.0,
        output_gate: str | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.head_dropout = head_dropout
        self.query = projection(d_model, heads.count * heads.size)
        # Parameters keep their order: checkpoints number them, and rounding of the gradient's norm depends on it.
        self.attend = attend(num_heads=heads.count, d_head=heads.size, dropout=dropout)
        self.kind, reads_keys = type(self.attend), self.attend.reads_keys
        if not reads_keys and (qk_norm or rotary):
            setting = "qk_norm" if qk_norm else "positions=rotary"
            raise ValueError(f"model.{setting}: acts on keys, which {self.kind.__name__} does not read; leave it out")
        # No projection that no output depends on: several processes would wait for its gradients.
        self.key = projection(d_model, heads.kv * heads.size) if reads_keys else None
        self.value = projection(d_model, heads.kv * heads.size)
        self.output_gate = OutputGate(d_model, heads, output_gate) if output_gate else None
        self.output = projection(heads.count * heads.size, d_model)
        self.rotate = Rotation(heads.size, rotary) if rotary else None
        self.qk_norm = QueryKeyNorm(heads.count, qk_norm, qk_scale) if qk_norm else None
        self.register_buffer("head_gate", None, persistent=False)

    @torch.no_grad()
    def apply_gain(self) -> None:
        """Multiply the initial weights of queries and keys by the gain of the `Attend`."""
        for projection in (self.query, self.key):
            for weights in projection.parameters() if projection is not None else ():
                weights.mul_(self.attend.gain)

    def project(self, context: Float[Tensor, "batch key d_model"], step: int | None = None) -> KeysValues:
        """Keys and values of `context` at the positions 0, 1, 2, ...; in search, all of them at position `step`."""
        value = self.value(context).unflatten(2, (self.heads.kv, self.heads.size)).transpose(1, 2)
        return KeysValues(value if self.key is None else self._placed(self.key(context), self.heads.kv, step), value)

    def forward(
        self,
        x: Float[Tensor, "batch query d_model"],
        context: KeysValues,
        mask: Mask,
        positions: TokenPositions,
        state: Tensor | None = None,
        need_weights: bool = False,
    ) -> AttentionOutput:
        """Output [batch, query, d_model] of queries x that attend to `context` where `mask` is True; weights and state
        as in `AttentionOutput`."""
        query = self._placed(self.query(x), self.heads.count, positions.step)
        if self.qk_norm is not None:
            query = query * self.qk_norm.scale.to(query.dtype)[:, None, None]
        if self.heads.kv < self.heads.count:
            context = KeysValues(
                *(shared.repeat_interleave(self.heads.count // self.heads.kv, 1) for shared in context)
            )
        if self.heads.local:
            mask = local_mask(mask, self.heads, positions.query, positions.key)
            positions = positions._replace(causal=False)
        found = self.attend(query, *context, mask, positions, state, need_weights)
        heads, weights, state = found if self.output_gate is None else self.output_gate(query, *context, found, x)
        gate = self.head_gate
        if self.training and self.head_dropout:
            kept = head_dropout_mask(len(x), self.heads.count, self.head_dropout, x.device)
            gate = kept if gate is None else gate * kept
        if gate is not None:
            heads = heads * gate[..., None, None]
        return AttentionOutput(self.output(heads.transpose(1, 2).flatten(2)), weights, state)

    def _placed(self, x: Tensor, heads: int, step: int | None) -> Tensor:
        """Projected queries or keys [batch, position, head * d_head], split into heads, normalised and rotated."""
        x = x.unflatten(2, (heads, self.heads.size)).transpose(1, 2)
        x = x if self.qk_norm is None else self.qk_norm(x)
        return x if self.rotate is None else self.rotate(x, step)


def projection(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer; of a layer without heads it has no weights, and no inputs or no outputs."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Initializing zero-element tensors")
        return nn.Linear(inputs, outputs)


def local_mask(mask: Mask, heads: HeadPlan, query: Int[Tensor, "#query"], key: Int[Tensor, "key"]) -> Mask:
    """`mask` without what lies outside the window of the local heads; query, key: their positions.

    The window: Beltagy et al. 2020, "Longformer", section 3.1, where it has both sides together, 2 `window`.
    """
    near = (query[:, None] - key).abs() <= heads.window  # [query, key]
    everywhere = torch.arange(heads.count, device=near.device)[:, None, None] >= heads.local
    within = (near | everywhere)[None]
    if mask is None:
        return within
    inside = mask & within
    # Padding far behind a sentence has no key inside its window, and a softmax over no keys is not a number.
    return inside | (mask & ~inside.any(dim=-1, keepdim=True))
