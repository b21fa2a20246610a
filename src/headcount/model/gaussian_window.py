"""The sliding window from which attention began: no score and no softmax, but a place that moves along the source."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn

from headcount.model.attention import Attend, AttentionOutput, Key, Mask, Query, TokenPositions

LARGEST = 20.0  # a', b' or c': far beyond what is of use, and no product or sum of what comes of it overflows


class Centres(NamedTuple):
    """Where the windows of each hypothesis stand, [row, head, gaussian]; rows are sentence x beam."""

    places: Tensor

    def select(self, rows: Int[Tensor, "new_row"]) -> "Centres":
        return Centres(self.places.index_select(0, rows))


class Mixture(NamedTuple):
    """The Gaussians at each target step, each [batch, head, query, gaussian]: a, b and c of the equations below."""

    heights: Tensor
    widths: Tensor
    centres: Tensor


class GaussianWindow(nn.Module, Attend):
    """A mixture of Gaussians over the source whose centres only move forward: Graves 2013, "Generating sequences with
    recurrent neural networks", equations 46 to 51.

        (a', b', c') = W q + bias                        eq. 48
        a = exp(a'), b = exp(b'), c_t = c_(t-1) + exp(c')    eq. 49, 50, 51
        weight(t, u) = sum over Gaussians a exp(-b (c_t - u)^2), output = sum over u weight(t, u) v_u    eq. 46, 47

    u counts source positions from 1, and c_0 is 0. Keys are not read: where a window goes, the target alone decides.
    Centres are sums over target steps: all at once in training, and in search the state from one step to the next. W is
    kept as `weight` / sqrt(d_head), since an update that moves all its numbers by as much as those of other matrices
    would throw the centres out of the sentence.

    gaussians: K, of each head. Raises ValueError if there is none.
    """

    reads_keys = False

    def __init__(self, *, num_heads: int, d_head: int, dropout: float, gaussians: int) -> None:
        super().__init__()
        if gaussians < 1:
            raise ValueError(f"gaussians={gaussians}: must be 1 or more")
        self.gaussians = gaussians
        self.dropout = nn.Dropout(dropout)
        self.weight = nn.Parameter(torch.empty(num_heads, d_head, 3 * gaussians).normal_(std=0.1))
        # At first a step forward for each target token, over about three source tokens, the weights summing to about 1.
        height, width, step = -math.log(2 * gaussians), -1.0, 0.0
        start = torch.tensor([height, width, step]).repeat_interleave(gaussians)
        self.bias = nn.Parameter(start.expand(num_heads, 1, -1).clone())

    def begin(self, rows: int) -> Centres:
        """Before the source."""
        return Centres(self.bias.new_zeros(rows, len(self.bias), self.gaussians))

    def mixture(self, query: Query, state: Centres | None) -> Mixture:
        """Which Gaussians these queries make: of all target steps at once, or of the one after `state`."""
        exact = torch.promote_types(query.dtype, torch.float32)
        weight, bias = self.weight.to(exact) * self.weight.shape[1] ** -0.5, self.bias.to(exact)
        heights, widths, steps = (query.to(exact) @ weight + bias).clamp(max=LARGEST).exp().chunk(3, -1)
        if state is None:
            return Mixture(heights, widths, steps.cumsum(dim=2))
        return Mixture(heights, widths, state.places.unflatten(0, (len(query), -1)).transpose(1, 2) + steps)

    def forward(
        self,
        query: Query,
        key: Key,
        value: Key,
        mask: Mask | None,
        positions: TokenPositions,
        state: Centres | None,
        need_weights: bool,
    ) -> AttentionOutput:
        with torch.autocast(query.device.type, enabled=False):  # a sum over steps, which rounding would make drift
            heights, widths, centres = self.mixture(query, state)
            distance = centres[..., None] - (positions.key + 1)
            weights = (heights[..., None] * torch.exp(-widths[..., None] * distance * distance)).sum(dim=3)
            if mask is not None:
                weights = weights * mask
        output = self.dropout(weights).to(value.dtype) @ value
        state = Centres(centres.transpose(1, 2).flatten(0, 1)) if state is not None else None
        return AttentionOutput(output, weights if need_weights else None, state)
