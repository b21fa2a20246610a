"""The blocks of encoder and decoder: attention and feed-forward, each inside a residual connection.

The connection around a sublayer f is `after(x, f(before(x)))`; pre- and post-norm are two ways to fill that in.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headcount.model.cache import Cache, KeysValues
from headcount.model.dropout import Dropout
from headcount.model.feed_forward import FeedForward
from headcount.model.multi_head import MultiHeadAttention


def for_products(x: Tensor) -> Tensor:
    """x in the precision of the matrix products that read it; in mixed precision each of them would cast it anew."""
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x


class PreNorm(nn.Module):
    """x + dropout(f(norm(x))): Xiong et al. 2020, "On layer normalization in the Transformer architecture".

    The sum is never normalised on its way up, so a stack of such layers ends in a norm of its own.
    """

    final_norm = nn.LayerNorm

    def __init__(self, d_model: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)

    def before(self, x: Tensor) -> Tensor:
        return for_products(self.norm(x))

    def after(self, x: Tensor, update: Tensor) -> Tensor:
        return x + self.dropout(update)


class PostNorm(nn.Module):
    """norm(x + dropout(f(x))): Vaswani et al. 2017, section 3.1."""

    final_norm = nn.Identity

    def __init__(self, d_model: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)

    def before(self, x: Tensor) -> Tensor:
        return for_products(x)

    def after(self, x: Tensor, update: Tensor) -> Tensor:
        return self.norm(x + self.dropout(update))


RESIDUALS: dict[str, type[PreNorm | PostNorm]] = {"pre": PreNorm, "post": PostNorm}
ResidualFactory = Callable[[], PreNorm | PostNorm]


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    residuals: Sequence[PreNorm | PostNorm]

    def __init__(
        self, self_attention: MultiHeadAttention, feed_forward: FeedForward, residual: ResidualFactory
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.feed_forward = feed_forward
        self.residuals = nn.ModuleList([residual(), residual()])  # type: ignore[assignment]

    def forward(self, x: Tensor, mask: Tensor | None, need_weights: bool = False) -> tuple[Tensor, Tensor | None]:
        """x [batch, source, d_model] and the weights [batch, head, source, source] if asked for."""
        y = self.residuals[0].before(x)
        update, weights, _ = self.self_attention(y, self.self_attention.project(y), mask, None, need_weights)
        x = self.residuals[0].after(x, update)
        return self.residuals[1].after(x, self.feed_forward(self.residuals[1].before(x))), weights


class LayerState(NamedTuple):
    """What a decoder layer needs besides its input; in search, kept from one step to the next.

    past: in search, keys and values of the target so far, of all beams of a sentence; None where x is a whole target.
    memory: keys and values of the source, [batch, kv_head, source, d_head]: once a sentence, however many beams.
    cross: the state of the cross-attention's `Attend`, None for those that have none.
    """

    past: Cache | None
    memory: KeysValues
    cross: Any

    def select(self, sentences: Tensor) -> "LayerState":
        """The state of these sentences alone, that of the cross-attention as it is: it goes by rows, not sentences."""
        if self.past is not None:
            self.past.select(sentences)
        return self._replace(memory=self.memory.select(sentences))


class Decoded(NamedTuple):
    """Output [batch, target, d_model] of a decoder layer, weights of self- and cross-attention, and the new state."""

    output: Tensor
    self_weights: Tensor | None
    cross_weights: Tensor | None
    state: LayerState


class DecoderLayer(nn.Module):
    """Causal self-attention, then attention to the source (the place of Bahdanau et al. 2015), then feed-forward."""

    residuals: Sequence[PreNorm | PostNorm]

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        cross_attention: MultiHeadAttention,
        feed_forward: FeedForward,
        residual: ResidualFactory,
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.cross_attention = cross_attention
        self.feed_forward = feed_forward
        self.residuals = nn.ModuleList([residual(), residual(), residual()])  # type: ignore[assignment]

    def forward(
        self,
        x: Tensor,
        state: LayerState,
        target_mask: Tensor | None,
        source_mask: Tensor | None,
        need_weights: bool = False,
        position: int | None = None,
    ) -> Decoded:
        """One pass over x [batch, target, d_model]: a whole target in training; in search the newest token of each beam
        of a sentence, side by side, and all at `position`. target_mask [#batch, 1, target, key] says which of the
        target each may see."""
        first, second, third = self.residuals
        y = first.before(x)
        target = self.self_attention.project(y, position)
        if state.past is not None:
            target = state.past.append(target)
        update, self_weights, _ = self.self_attention(y, target, target_mask, None, need_weights, position)
        x = first.after(x, update)
        update, cross_weights, cross = self.cross_attention(
            second.before(x), state.memory, source_mask, state.cross, need_weights
        )
        x = second.after(x, update)
        x = third.after(x, self.feed_forward(third.before(x)))
        return Decoded(x, self_weights, cross_weights, state._replace(cross=cross))
