r"""Head plan: for each attention of each layer how many heads, how large, which share keys and values, which are local.

Heads of queries (q) that share a head of keys (k) and values (v), with four heads:

    multi-head, kv 4           grouped-query, kv 2           multi-query, kv 1

    v     v     v     v           v           v                      v
    k     k     k     k           k           k                      k
    |     |     |     |         /   \       /   \              /   /   \   \
    q     q     q     q        q     q     q     q          q     q     q     q
"""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from headcount.model.attention import Mask
from headcount.model.settings import Heads


class HeadPlan(NamedTuple):
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
