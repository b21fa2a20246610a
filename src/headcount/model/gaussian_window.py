"""Gaussian window attention: no score and no softmax, but a window that slides along the keys."""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn

from headcount.devices import cumulative_sum
from headcount.model.attention import Attend, AttentionOutput, Key, Mask, Query, TokenPositions

LARGEST = 20.0  # of a', b' and c': far beyond useful values, and nothing computed from them overflows


class Centres(NamedTuple):
    """Centres of the Gaussians of each hypothesis, [row, head, gaussian]; rows are sentence x hypothesis."""

    centres: Tensor

    def select(self, rows: Int[Tensor, "new_row"]) -> "Centres":
        return Centres(self.centres.index_select(0, rows))


class Mixture(NamedTuple):
    """The Gaussians of each query: a, b and c of the equations below, each [batch, head, query, gaussian]."""

    heights: Tensor
    widths: Tensor
    centres: Tensor


class GaussianWindow(nn.Module, Attend):
    """A mixture of Gaussians over the keys whose centres only move forward: Graves 2013, "Generating sequences with
    recurrent neural networks", equations 46 to 51.

        (a', b', c') = W q + bias                        eq. 48
        a = exp(a'), b = exp(b'), c_t = c_(t-1) + exp(c')    eq. 49, 50, 51
        weight(t, u) = sum over Gaussians a exp(-b (c_t - u)^2), output = sum over u weight(t, u) v_u    eq. 46, 47

    u counts the positions of the keys from 1, and c_0 is 0. The window depends on the queries alone, not on the keys.
    A centre is a sum over the queries so far: computed for all queries at once in training, and in search the state
    from one target position to the next. W is kept as `weight` / sqrt(d_head): an update as large as that of other
    matrices would move the centres out of the sentence.

    gaussians: K, for each head. Raises ValueError for less than 1.
    """

    reads_keys = False

    def __init__(self, *, num_heads: int, d_head: int, dropout: float, gaussians: int) -> None:
        super().__init__()
        if gaussians < 1:
            raise ValueError(f"gaussians={gaussians}: must be 1 or more")
        self.gaussians = gaussians
        self.dropout = nn.Dropout(dropout)
        self.weight = nn.Parameter(torch.empty(num_heads, d_head, 3 * gaussians).normal_(std=0.1))
        # Initially one step forward for each query; the weights cover about three keys and sum to about 1.
        height, width, step = -math.log(2 * gaussians), -1.0, 0.0
        start = torch.tensor([height, width, step]).repeat_interleave(gaussians)
        self.bias = nn.Parameter(start.expand(num_heads, 1, -1).clone())

    def begin(self, rows: int) -> Centres:
        """Centres before the first key."""
        return Centres(self.bias.new_zeros(rows, len(self.bias), self.gaussians))

    def mixture(self, query: Query, state: Centres | None) -> Mixture:
        """The Gaussians of a whole sentence of queries, or of the target position after `state`."""
        exact = torch.promote_types(query.dtype, torch.float32)
        weight, bias = self.weight.to(exact) * self.weight.shape[1] ** -0.5, self.bias.to(exact)
        heights, widths, steps = (query.to(exact) @ weight + bias).clamp(max=LARGEST).exp().chunk(3, -1)
        if state is None:
            return Mixture(heights, widths, cumulative_sum(steps, dim=2))
        before = state.centres.unflatten(0, (len(query), query.shape[2])).transpose(1, 2)
        return Mixture(heights, widths, before + steps)

    def forward(
        self, query: Query, key: Key, value: Key, mask: Mask, positions: TokenPositions, state: Any, need_weights: bool
    ) -> AttentionOutput:
        with torch.autocast(query.device.type, enabled=False):  # rounding errors would add up in the sum
            heights, widths, centres = self.mixture(query, state)
            distance = centres[..., None] - (positions.key + 1)
            weights = (heights[..., None] * torch.exp(-widths[..., None] * distance * distance)).sum(dim=3)
            if mask is not None:
                weights = weights * mask
        output = self.dropout(weights).to(value.dtype) @ value
        state = Centres(centres.transpose(1, 2).flatten(0, 1)) if state is not None else None
        return AttentionOutput(output, weights if need_weights else None, state)
