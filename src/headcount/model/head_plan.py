"""How far the heads of self-attention can look: everywhere, or some of them only nearby."""

from collections.abc import Iterable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

Reachable = Bool[Tensor, "#batch #head #query #key"]


class Everywhere:
    """Every head sees whatever the mask lets it see."""

    def __call__(
        self, mask: Reachable | None, heads: int, queries: Int[Tensor, "query"], keys: Int[Tensor, "key"]
    ) -> Reachable | None:
        """The mask of a layer with so many heads, whose queries and keys stand at these places."""
        return mask


class LocalHeads:
    """The first few heads of each layer see no farther than `window` positions to either side, the others everything.

    Heads of both kinds side by side are those of Beltagy et al. 2020, "Longformer", section 3.2, where the window is
    called w / 2, here to see what is lost. Raises ValueError for a window below 0.
    """

    def __init__(self, local_heads: int, window: int) -> None:
        if window < 0:
            raise ValueError(f"model.local_window={window}: must be 0 or more positions to each side")
        self.local_heads = local_heads
        self.window = window

    def __call__(
        self, mask: Reachable | None, heads: int, queries: Int[Tensor, "query"], keys: Int[Tensor, "key"]
    ) -> Reachable:
        near = (queries[:, None] - keys).abs() <= self.window  # [query, key]
        far = torch.arange(heads, device=near.device)[:, None, None] >= self.local_heads
        within = (near | far)[None]
        if mask is None:
            return within
        seen = mask & within
        # Padding far behind a sentence would see none of it, and what is made of nothing is no number.
        return seen | (mask & ~seen.any(dim=-1, keepdim=True))


Reach = Everywhere | LocalHeads


def reach_of(local_heads: int, window: int, counts: Iterable[int]) -> Reach:
    """What `local_heads` of layers with `counts` heads can reach. Raises ValueError, naming the setting."""
    least = min(counts)
    if not 0 <= local_heads <= least:
        raise ValueError(
            f"model.local_heads={local_heads}: must be from 0, for none, to {least}, the heads of each self-attention"
        )
    return LocalHeads(local_heads, window) if local_heads else Everywhere()
