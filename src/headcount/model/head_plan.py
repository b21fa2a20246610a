r"""Head plan: for each attention of each layer how many heads, how large, which share keys and values, which are local.

Heads of queries (q) that share a head of keys (k) and values (v), with four heads:

    multi-head, kv 4           grouped-query, kv 2           multi-query, kv 1

    v     v     v     v           v           v                      v
    k     k     k     k           k           k                      k
    |     |     |     |         /   \       /   \              /   /   \   \
    q     q     q     q        q     q     q     q          q     q     q     q
"""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from headcount.model.attention import Mask
from headcount.model.settings import Heads


@dataclass(frozen=True)
class HeadPlan:
    """The heads of one attention.

    count: heads of queries; without any, 0, the layer adds the bias of the output projection alone. size: d_head. kv:
    heads of keys and values, each shared by `count / kv` neighbouring heads of queries: Ainslie et al. 2023, "GQA:
    training generalized multi-query Transformer models"; one is the multi-query attention of Shazeer 2019, "Fast
    Transformer decoding". local: the first heads, which attend to at most `window`
    positions to either side; the others attend to all.

    Raises ValueError for numbers that do not fit together.
    """

    count: int
    size: int
    kv: int
    local: int = 0
    window: int = 0

    def __post_init__(self) -> None:
        if self.kv and self.count % self.kv:
            raise ValueError(
                f"model.kv_heads={self.kv}: must divide every number of heads, {self.count} among them; or null"
            )
        if self.local > self.count:
            raise ValueError(
                f"model.local_heads={self.local}: must be 0 to {self.count}, the heads of a self-attention"
            )


def plan_heads(
    num_heads: Heads,
    kinds: tuple[Heads | None, Heads | None, Heads | None],
    layers: tuple[int, int],
    d_model: int,
    head_size: int | None,
    kv_heads: int | None,
    local_heads: int,
    local_window: int,
) -> list[list[HeadPlan]]:
    """The heads of each layer of the encoder's self-attention, of the decoder's, and of cross-attention.

    num_heads: heads of all three kinds of attention. kinds: encoder_heads, decoder_heads and cross_heads, which
    override it. layers: encoder_layers and decoder_layers. head_size: d_head; None: d_model / heads. kv_heads: heads of
    keys and values; None: as many as heads. local_heads, local_window: of each self-attention.

    Raises ValueError, naming the setting, its value, what is allowed and the fix.
    """
    local = (local_heads, local_window)
    plans = []
    for name, heads, depth, own in zip(
        ("encoder_heads", "decoder_heads", "cross_heads"),
        kinds,
        (*layers, layers[1]),
        (local, local, (0, 0)),
        strict=True,
    ):
        name, heads = ("num_heads", num_heads) if heads is None else (name, heads)
        counts = heads_per_layer(f"model.{name}", heads, depth, d_model, head_size)
        shared = [kv_heads if kv_heads and count else count for count in counts]
        plans.append(
            [HeadPlan(count, head_size or d_model // count, kv, *own) for count, kv in zip(counts, shared, strict=True)]
        )
    return plans


def heads_per_layer(name: str, heads: Heads, layers: int, d_model: int, head_size: int | None) -> list[int]:
    """`heads` as one number for each layer.

    Raises ValueError for another number of numbers, for one below 0 and, without head_size, for 0 and for one that does
    not divide d_model.
    """
    per_layer = [heads] * layers if isinstance(heads, int) else list(heads)
    if len(per_layer) != layers:
        raise ValueError(
            f"{name}={per_layer}: {len(per_layer)} numbers for {layers} layers; give one number, or {layers}"
        )
    for count in per_layer:
        if count < (head_size is None):
            zero = "; 0, a layer without heads, needs model.head_size" if count == 0 else ""
            raise ValueError(f"{name}={count}: must be {0 if head_size else 1} or more{zero}")
        if head_size is None and d_model % count:
            fits = [n for n in range(1, d_model + 1) if d_model % n == 0]
            near = sorted(sorted(fits, key=lambda n: abs(n - count))[:2])
            raise ValueError(
                f"{name}={count} does not divide model.d_model={d_model}: the nearest that do are {near[0]} and "
                f"{near[-1]}; or fix the size of a head with model.head_size"
            )
    return per_layer


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
