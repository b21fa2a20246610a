r"""Head plan: for each attention of each layer how many heads, how large, which share keys and values, which are local.

Heads of queries (q) that share a head of keys (k) and values (v), with four heads:

    multi-head, kv 4           grouped-query, kv 2           multi-query, kv 1

    v     v     v     v           v           v                      v
    k     k     k     k           k           k                      k
    |     |     |     |         /   \       /   \              /   /   \   \
    q     q     q     q        q     q     q     q          q     q     q     q
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from headcount.model.attention import Mask
from headcount.model.settings import check_size

HeadCounts = int | Sequence[int]
MOST_LAYERS = 256


@dataclass(frozen=True)
class HeadPlan:
    """The heads of one attention.

    count: heads of queries; without any, 0, the layer adds the bias of the output projection alone. size: d_head. kv:
    heads of keys and values, each shared by `count / kv` neighbouring heads of queries: Ainslie et al. 2023, "GQA:
    training generalized multi-query Transformer models"; one is the multi-query attention of Shazeer 2019, "Fast
    Transformer decoding". local: the first heads, which attend to at most `window`
    positions to either side; the others attend to all.
    """

    count: int
    size: int
    kv: int
    local: int
    window: int


class ModelHeads(NamedTuple):
    """The heads of each layer, by kind of attention."""

    encoder: list[HeadPlan]
    decoder: list[HeadPlan]
    cross: list[HeadPlan]


def plan_heads(
    num_heads: HeadCounts,
    kinds: tuple[HeadCounts | None, HeadCounts | None, HeadCounts | None],
    layers: tuple[int, int],
    d_model: int,
    head_size: int | None,
    kv_heads: int | None,
    local_heads: int,
    local_window: int,
) -> ModelHeads:
    """The head plan of a Transformer with these settings.

    num_heads: heads of all three kinds of attention. kinds: encoder_heads, decoder_heads and cross_heads, which
    override it; each is one number, or one for each layer. layers: encoder_layers and decoder_layers. head_size:
    d_head; None: d_model / heads. kv_heads: heads of keys and values; None: as many as heads. local_heads,
    local_window: of each self-attention.

    Raises ValueError, naming the setting, its value, what is allowed and the fix.
    """
    check_size("d_model", d_model)
    for name, size in zip(("encoder_layers", "decoder_layers"), layers, strict=True):
        check_size(name, size, MOST_LAYERS)

    def counts(setting: str, heads: HeadCounts | None, depth: int) -> list[int]:
        setting, heads = ("num_heads", num_heads) if heads is None else (setting, heads)
        return heads_per_layer(f"model.{setting}", heads, depth, d_model, head_size)

    def plans(counts: list[int], local: int) -> list[HeadPlan]:
        return [HeadPlan(n, head_size or d_model // n, min(n, kv_heads or n), local, local_window) for n in counts]

    encoder = counts("encoder_heads", kinds[0], layers[0])
    decoder = counts("decoder_heads", kinds[1], layers[1])
    cross = counts("cross_heads", kinds[2], layers[1])
    if not any(encoder + decoder + cross):
        named = {"encoder_heads": kinds[0], "decoder_heads": kinds[1], "cross_heads": kinds[2]}
        given = [name for name, heads in named.items() if heads is not None]
        given += ["num_heads"] if len(given) < len(named) else []
        raise ValueError(f"{', '.join(f'model.{name}=0' for name in given)}: must be 1 or more in at least one layer")
    check_kv_heads(kv_heads, {*encoder, *decoder, *cross})
    check_local_heads(local_heads, local_window, encoder + decoder)
    return ModelHeads(plans(encoder, local_heads), plans(decoder, local_heads), plans(cross, 0))


def heads_per_layer(name: str, heads: HeadCounts, layers: int, d_model: int, head_size: int | None) -> list[int]:
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
            below = max(n for n in fits if n < count)
            above = min((n for n in fits if n > count), default=d_model)
            raise ValueError(
                f"{name}={count} does not divide model.d_model={d_model}: the nearest that do are {below} and {above}; "
                f"or fix the size of a head with model.head_size"
            )
    if head_size is not None and head_size < 1:
        raise ValueError(f"model.head_size={head_size}: must be 1 or more, or null for d_model / heads")
    return per_layer


def check_kv_heads(kv_heads: int | None, counts: Collection[int]) -> None:
    """Raises ValueError unless `kv_heads` divides all head counts."""
    common = math.gcd(*counts)
    if kv_heads is not None and (kv_heads < 1 or common % kv_heads):
        raise ValueError(
            f"model.kv_heads={kv_heads}: must divide every number of heads ({', '.join(map(str, sorted(counts)))}), so "
            f"one of {', '.join(str(n) for n in range(1, common + 1) if common % n == 0)}; or null, as many as heads"
        )


def check_local_heads(local_heads: int, window: int, counts: Collection[int]) -> None:
    """Raises ValueError for more local heads than the least of `counts`, or a window below 0."""
    if not 0 <= local_heads <= min(counts):
        raise ValueError(
            f"model.local_heads={local_heads}: must be 0 to {min(counts)}, the heads of the self-attention with the "
            "fewest"
        )
    if local_heads and window < 0:
        raise ValueError(f"model.local_window={window}: must be 0 or more positions to each side")


def local_mask(mask: Mask, heads: HeadPlan, query: Int[Tensor, "#query"], key: Int[Tensor, "key"]) -> Mask:
    """`mask` without what lies outside the window of the local heads; query, key: their positions.

    The window: Beltagy et al. 2020, "Longformer", section 3.1, where it has both sides together, 2 `window`.
    """
    if not heads.local:
        return mask
    near = (query[:, None] - key).abs() <= heads.window  # [query, key]
    everywhere = torch.arange(heads.count, device=near.device)[:, None, None] >= heads.local
    within = (near | everywhere)[None]
    if mask is None:
        return within
    inside = mask & within
    # Padding far behind a sentence has no key inside its window, and a softmax over no keys is not a number.
    return inside | (mask & ~inside.any(dim=-1, keepdim=True))
