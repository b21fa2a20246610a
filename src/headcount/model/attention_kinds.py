"""Kinds of attention from before the scaled dot-product: Luong's dot and general, additive, Gaussian window.

Queries and keys are the projections of multi-head attention, as for the scaled dot-product.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headcount.devices import cumulative_sum
from headcount.model.attention import Attend, AttentionOutput, Key, Mask, Query, SoftmaxAttention, TokenPositions
from headcount.model.dropout import Dropout
from headcount.model.settings import Factor, Size

LARGEST = 20.0  # of a', b' and c' of a window: far beyond useful values, and nothing computed from them overflows
# Numbers of [batch, head, query, key, d_head] that the additive score holds at a time; on a CPU, they fit its cache.
AT_ONCE = {"cpu": 2**18}


class LuongDot(SoftmaxAttention):
    """q k: Luong et al. 2015, "Effective approaches to attention-based neural machine translation", section 3.1, dot.

    The scaled dot-product without its scale: scores grow with d_head.

    gain: factor on the initial weights of the projections of queries and keys. None: d_head^(-1/4), so that the initial
    scores are those of the scaled dot-product. With 1, the initial softmax of a wide head puts nearly all weight on one
    key, and a model may not learn within its budget where to attend.
    """

    is_dot = True

    def __init__(self, *, num_heads: int, d_head: int, dropout: float, gain: Factor | None) -> None:
        super().__init__(num_heads=num_heads, d_head=d_head, dropout=dropout)
        self.gain = d_head**-0.25 if gain is None else gain


class LuongGeneral(SoftmaxAttention):
    """q W k with a matrix W a head: Luong et al. 2015, section 3.1, general.

    Queries and keys are projections already, and W could be multiplied into either: the dot can learn the same scores
    with d_head x d_head weights less per head. But the two learn differently. W is kept as `weight` / sqrt(d_head), and
    `weight` is initially the identity: with a random W, or with updates as large as those of other matrices, a model
    may not learn within its budget where to attend.
    """

    def __init__(self, *, num_heads: int, d_head: int, dropout: float) -> None:
        super().__init__(num_heads=num_heads, d_head=d_head, dropout=dropout)
        self.weight = nn.Parameter(torch.eye(d_head).repeat(num_heads, 1, 1))

    def score(self, query: Query, key: Key) -> Tensor:
        # Not query @ weight, which would copy the weights for each sentence.
        return torch.einsum("bhqd,hde->bhqe", query, self.weight * self.d_head**-0.5) @ key.transpose(-2, -1)


class Additive(SoftmaxAttention):
    """v tanh(q + k) with a vector v a head: Bahdanau et al. 2015, "Neural machine translation by jointly learning to
    align and translate", appendix A.1.2, whose W s and U h are the projections q and k. Luong's concat is the same.
    """

    def __init__(self, *, num_heads: int, d_head: int, dropout: float) -> None:
        super().__init__(num_heads=num_heads, d_head=d_head, dropout=dropout)
        self.vector = nn.Parameter(torch.empty(num_heads, d_head).uniform_(-1, 1) * math.sqrt(3 / d_head))

    def score(self, query: Query, key: Key) -> Tensor:
        """For some queries at a time, recomputed in the backward pass: all at once would take d_head times the memory
        of the scores."""
        at_once = max(1, AT_ONCE.get(key.device.type, 2**24) // max(key.numel(), 1))
        from torch.utils.checkpoint import checkpoint  # with torch.compile, which takes a second

        score = partial(checkpoint, self._score, use_reentrant=False, preserve_rng_state=False)
        return torch.cat([score(some, key) for some in query.split(at_once, dim=2)], dim=2)

    def _score(self, query: Query, key: Key) -> Tensor:
        exact = torch.promote_types(query.dtype, torch.float32)
        hidden = (query[:, :, :, None].to(exact) + key[:, :, None].to(exact)).tanh()
        return torch.einsum("bhqkd,hd->bhqk", hidden, self.vector.to(exact))


class Mixture(NamedTuple):
    """The Gaussians of each query: a, b and c of the equations below, each [batch, head, query, gaussian]."""

    heights: Tensor
    widths: Tensor
    centres: Tensor


class GaussianWindow(Attend):
    """A mixture of Gaussians over the keys whose centres only move forward: Graves 2013, "Generating sequences with
    recurrent neural networks", equations 46 to 51. It has no score and no softmax.

        (a', b', c') = W q + bias                        eq. 48
        a = exp(a'), b = exp(b'), c_t = c_(t-1) + exp(c')    eq. 49, 50, 51
        weight(t, u) = sum over Gaussians a exp(-b (c_t - u)^2), output = sum over u weight(t, u) v_u    eq. 46, 47

    u counts the positions of the keys from 1, and c_0 is 0. The window depends on the queries alone, not on the keys.
    A centre is a sum over the queries so far: computed for all queries at once in training, and in search the state
    [row, head, gaussian] from one target position to the next. W is kept as `weight` / sqrt(d_head): an update as large
    as that of other matrices would move the centres out of the sentence. gaussians: K, for each head.
    """

    reads_keys = False

    def __init__(self, *, num_heads: int, d_head: int, dropout: float, gaussians: Size) -> None:
        super().__init__()
        self.gaussians = gaussians
        self.dropout = Dropout(dropout)
        self.weight = nn.Parameter(torch.empty(num_heads, d_head, 3 * gaussians).normal_(std=0.1))
        # Initially one step forward for each query; the weights cover about three keys and sum to about 1.
        height, width, step = -math.log(2 * gaussians), -1.0, 0.0
        start = torch.tensor([height, width, step]).repeat_interleave(gaussians)
        self.bias = nn.Parameter(start.expand(num_heads, 1, -1).clone())

    def begin(self, rows: int) -> Tensor:
        """Centres before the first key."""
        return self.bias.new_zeros(rows, len(self.bias), self.gaussians)

    def mixture(self, query: Query, state: Tensor | None) -> Mixture:
        """The Gaussians of a whole sentence of queries, or of the target position after `state`."""
        exact = torch.promote_types(query.dtype, torch.float32)
        weight, bias = self.weight.to(exact) * self.weight.shape[1] ** -0.5, self.bias.to(exact)
        heights, widths, steps = (query.to(exact) @ weight + bias).clamp(max=LARGEST).exp().chunk(3, -1)
        if state is None:
            return Mixture(heights, widths, cumulative_sum(steps, dim=2))
        before = state.unflatten(0, (len(query), query.shape[2])).transpose(1, 2)
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
        output = self.dropout(weights.to(value.dtype)) @ value
        state = None if state is None else centres.transpose(1, 2).flatten(0, 1)
        return AttentionOutput(output, weights if need_weights else None, state)
