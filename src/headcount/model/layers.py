"""Encoder and decoder layers: attention and feed-forward sublayers, each inside a residual connection.

The connection around a sublayer f is `after(x, f(before(x)))`: see `PreNorm` and `PostNorm`.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headcount.model.attention import AttendFactory, TokenPositions, named
from headcount.model.cache import Cache, KeysValues
from headcount.model.dropout import Dropout, DropoutRates
from headcount.model.feed_forward import FEED_FORWARDS, FeedForward
from headcount.model.head_plan import HeadPlan
from headcount.model.multi_head import FusedProjection, MultiHeadAttention, QueryKeyNorm
from headcount.model.positions import Positions, Rotate, unrotated
from headcount.model.settings import check_size, choose


def in_product_precision(x: Tensor) -> Tensor:
    """x in the precision of the matrix products that read it: cast once, and not by each of them."""
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x


class PreNorm(nn.Module):
    """x + dropout(f(norm(x))): Xiong et al. 2020, "On layer normalization in the Transformer architecture".

    No layer normalises the sum, so a stack of these layers ends in a norm of its own.
    """

    final_norm = nn.LayerNorm

    def __init__(self, d_model: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)

    def before(self, x: Tensor) -> Tensor:
        return in_product_precision(self.norm(x))

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
        return in_product_precision(x)

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

    def forward(
        self, x: Tensor, mask: Tensor | None, positions: TokenPositions, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """x [batch, source, d_model] and the weights [batch, head, source, source] if they were asked for."""
        y = self.residuals[0].before(x)
        update, weights, _ = self.self_attention(y, self.self_attention.project(y), mask, positions, None, need_weights)
        x = self.residuals[0].after(x, update)
        return self.residuals[1].after(x, self.feed_forward(self.residuals[1].before(x))), weights


class AttentionScope(NamedTuple):
    """What the queries of a pass may attend to: the mask [#batch, #head, query, key], True = may attend, and the
    positions of queries and keys."""

    mask: Tensor | None
    positions: TokenPositions


class LayerState(NamedTuple):
    """The keys, values and states that a decoder layer attends with; in search, kept from one step to the next.

    past: in search, keys and values of the target so far, of all hypotheses of a sentence; None for a whole target.
    memory: keys and values of the source, [batch, kv_head, source, d_head], one for all hypotheses of a sentence.
    projection: in search, that of self-attention, copied at its start: weights that change act from the next search on.
    own, cross: states of the `Attend` of self-attention and of cross-attention; None for a kind without a state.
    """

    past: Cache | None
    memory: KeysValues
    projection: FusedProjection | None = None
    own: Any = None
    cross: Any = None

    def select(self, rows: Tensor, sentences: Tensor | None) -> "LayerState":
        """The state of these hypotheses; sentences: the sentences that remain, None if all do."""
        own, cross = (state and state.select(rows) for state in (self.own, self.cross))
        if sentences is None:
            return self._replace(own=own, cross=cross)
        if self.past is not None:
            self.past.select(sentences)
        return LayerState(self.past, self.memory.select(sentences), self.projection, own, cross)


class DecoderLayerOutput(NamedTuple):
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

    def start(self, memory: Tensor) -> LayerState:
        """The state before the first target position of a search, given the encoder's output."""
        # Made contiguous once, or attention would do so at every step.
        keys_values = KeysValues(*(x.contiguous() for x in self.cross_attention.project(memory)))
        states = (each.attend.begin(len(memory)) for each in (self.self_attention, self.cross_attention))
        return LayerState(Cache(), keys_values, self.self_attention.fused(), *states)

    def forward(
        self, x: Tensor, state: LayerState, target: AttentionScope, source: AttentionScope, need_weights: bool
    ) -> DecoderLayerOutput:
        """One pass over x [batch, target, d_model]: in training, a whole target; in search, the newest token of each
        hypothesis of a sentence, side by side. target, source: the scopes of self-attention and cross-attention."""
        first, second, third = self.residuals
        y = first.before(x)
        if state.past is None:
            query, keys_values = None, self.self_attention.project(y)
        else:
            assert state.projection is not None  # a search begins with both: see `start`
            query, new = self.self_attention.project_all(y, state.projection, target.positions.step)
            keys_values = state.past.append(new)
        update, self_weights, own = self.self_attention(y, keys_values, *target, state.own, need_weights, query)
        x = first.after(x, update)
        y = second.before(x)
        update, cross_weights, cross = self.cross_attention(y, state.memory, *source, state.cross, need_weights)
        x = second.after(x, update)
        x = third.after(x, self.feed_forward(third.before(x)))
        return DecoderLayerOutput(x, self_weights, cross_weights, state._replace(own=own, cross=cross))


class LayerFactory:
    """Builds the layers of a Transformer from their head plans.

    norm, feed_forward: names of `RESIDUALS` and `FEED_FORWARDS`. d_feed_forward: hidden width. attends: build the
    `Attend` of self-attention and of cross-attention. qk_norm: as in `MultiHeadAttention`.

    Raises ValueError, naming the setting, its value and what is allowed.
    """

    def __init__(
        self,
        d_model: int,
        norm: str,
        feed_forward: str,
        d_feed_forward: int,
        dropouts: DropoutRates,
        attends: tuple[AttendFactory, AttendFactory],
        qk_norm: Callable[[int], QueryKeyNorm] | None,
    ) -> None:
        check_size("d_feed_forward", d_feed_forward)
        residual = choose("norm", norm, RESIDUALS)
        kind = choose("feed_forward", feed_forward, FEED_FORWARDS)
        self.residual = partial(residual, d_model, dropouts.dropout)
        self.final_norm = partial(residual.final_norm, d_model)  # at the end of a stack
        self.feed_forward = partial(kind, d_model, d_feed_forward, dropouts.activation_dropout)
        self.d_model = d_model
        self.dropouts = dropouts
        self.self_attention, self.cross_attention = attends
        self.qk_norm = qk_norm

    def encoder(self, heads: Iterable[HeadPlan], positions: Positions) -> Any:
        return nn.ModuleList(
            EncoderLayer(self._to_itself(each, positions), self.feed_forward(), self.residual) for each in heads
        )

    def decoder(self, heads: Iterable[HeadPlan], cross: Iterable[HeadPlan], positions: Positions) -> Any:
        return nn.ModuleList(
            DecoderLayer(self._to_itself(own, positions), self._to_source(other), self.feed_forward(), self.residual)
            for own, other in zip(heads, cross, strict=True)
        )

    def _to_itself(self, heads: HeadPlan, positions: Positions) -> MultiHeadAttention:
        attend = named("model.self_attention", self.self_attention)
        rotation = positions.rotation(heads.size)
        made = self._attention(heads, attend, rotation)
        if made.key is None and (self.qk_norm or rotation is not unrotated):
            setting, allowed = ("qk_norm", "null") if self.qk_norm else ("positions=rotary", "sinusoidal or learned")
            kind = made.kind.__name__
            raise ValueError(f"model.{setting}: acts on keys, but model.self_attention={kind} has none; give {allowed}")
        return made

    def _to_source(self, heads: HeadPlan) -> MultiHeadAttention:
        attend = named("model.cross_attention", self.cross_attention)
        return self._attention(heads, attend, unrotated)

    def _attention(self, heads: HeadPlan, attend: AttendFactory, rotate: Rotate) -> MultiHeadAttention:
        dropout, head_dropout = self.dropouts.attention_dropout, self.dropouts.head_dropout
        return MultiHeadAttention(self.d_model, heads, attend, dropout, rotate, self.qk_norm, head_dropout)
