"""Dropout of activations, with masks that are cheap to draw, of whole heads and of whole layers."""

from collections.abc import Iterable
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Layer = TypeVar("Layer")


class Dropout(nn.Module):
    """Zeroes each number with probability p in training and scales the rest: Srivastava et al. 2014.

    On a CPU, torch draws one random number for each element, a tenth of a small model's training time. Here each takes
    one byte of a random word, so p is rounded to 1/256, and the scale with it. torch draws the mask for a p that would
    be rounded to 0 or 1, and where it compiles the model.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        dropped = round(self.p * 256)
        if x.device.type != "cpu" or dropped in (0, 256) or torch.compiler.is_compiling():
            return F.dropout(x, self.p)
        words = torch.empty(-(-x.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
        drawn = words.view(torch.uint8)[: x.numel()]
        # Bytes that are 0 or 1: with bool, torch takes ten times as long to write and to convert.
        kept = torch.ge(drawn, dropped, out=torch.empty_like(drawn))
        return x * kept.to(x.dtype).mul_(256 / (256 - dropped)).view(x.shape)


def head_dropout_mask(batch: int, heads: int, p: float, device: torch.device) -> Tensor:
    """DropHead: zeros with probability p, elsewhere heads / heads kept, [batch, head]; Zhou et al. 2020, "Scheduled
    DropHead: a regularization method for Transformer models", algorithm 1, with a constant p.

    Each sentence has its own heads. One that would lose all of them keeps one of them, any with the same probability.
    """
    if heads < 2:
        return torch.ones(batch, heads, device=device)
    drawn = torch.rand(batch, heads, device=device)
    kept = (drawn >= p) | (drawn == drawn.amax(dim=1, keepdim=True))
    return kept * (heads / kept.sum(dim=1, keepdim=True))


class LayerDropout(nn.Module):
    """LayerDrop: leaves out each layer with probability p in training: Fan et al. 2020, "Reducing Transformer depth on
    demand with structured dropout", section 3.2.

    The parameters of a layer that is left out have no gradient in that step, and an optimizer skips them. Each process
    draws its own layers, so DistributedDataParallel needs find_unused_parameters=True.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, layers: Iterable[Layer]) -> list[Layer]:
        """The layers that run, in order."""
        stack = list(layers)
        if not self.training or self.p == 0:
            return stack
        kept = (torch.rand(len(stack), device="cpu") >= self.p).tolist()
        return [layer for layer, keep in zip(stack, kept, strict=True) if keep]
