"""The blocks of encoder and decoder: attention and feed-forward, each inside a residual connection.

The connection around a sublayer f is `after(x, f(before(x)))`; pre- and post-norm are two ways to fill that in.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from headcount.model.attention import Attended, KeysValues, MultiHeadAttention
from headcount.model.dropout import Dropout


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
        return self.norm(x)

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
        return x

    def after(self, x: Tensor, update: Tensor) -> Tensor:
        return self.norm(x + self.dropout(update))


RESIDUALS: dict[str, type[PreNorm | PostNorm]] = {"pre": PreNorm, "post": PostNorm}
ResidualFactory = Callable[[], PreNorm | PostNorm]


class FeedForward(nn.Sequential):
    """max(0, x W_1 + b_1) W_2 + b_2, at every position alike: Vaswani et al. 2017, equation 2."""

    def __init__(self, d_model: int, d_hidden: int, dropout: float) -> None:
        super().__init__(
            nn.Linear(d_model, d_hidden), nn.ReLU(inplace=True), Dropout(dropout), nn.Linear(d_hidden, d_model)
        )


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
    """What a decoder layer keeps from one target position to the next.

    past: keys and values of the target so far, [row, head, target, d_head]; None at the first position.
    memory: keys and values of the source, [sentence, head, source, d_head]: once a sentence, however many beams.
    cross: the state of the cross-attention's `Attend`, None for those that have none.
    """

    past: KeysValues | None
    memory: KeysValues
    cross: Any


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
        causal_mask: Tensor | None,
        source_mask: Tensor | None,
        need_weights: bool = False,
    ) -> Decoded:
        """One pass over x [batch, target, d_model]: a whole target in training, the newest position in search."""
        first, second, third = self.residuals
        y = first.before(x)
        past = self.self_attention.project(y)
        if state.past is not None:
            past = state.past.append(past)
        update, self_weights, _ = self.self_attention(y, past, causal_mask, None, need_weights)
        x = first.after(x, update)
        update, cross_weights, cross = self._look_at_source(second.before(x), state, source_mask, need_weights)
        x = second.after(x, update)
        x = third.after(x, self.feed_forward(third.before(x)))
        return Decoded(x, self_weights, cross_weights, LayerState(past, state.memory, cross))

    def _look_at_source(self, x: Tensor, state: LayerState, mask: Tensor | None, need_weights: bool) -> Attended:
        # In search the rows are sentence x beam, one target position each. The beams of a sentence then stand in line
        # as so many queries to the one copy of its keys and values.
        rows, sentences = x.shape[0], state.memory.key.shape[0]
        if rows == sentences:
            return self.cross_attention(x, state.memory, mask, state.cross, need_weights)
        update, weights, cross = self.cross_attention(
            x.reshape(sentences, rows // sentences, -1), state.memory, mask, state.cross, need_weights
        )
        return Attended(update.reshape(x.shape), weights, cross)
