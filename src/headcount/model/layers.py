"""Encoder and decoder layers: attention and feed-forward sublayers, each inside a residual connection.

The connection around a sublayer f is `after(x, f(before(x)))`: see `Residual`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from headcount.model.attention import TokenPositions
from headcount.model.cache import KeysValues, LayerState
from headcount.model.dropout import Dropout
from headcount.model.multi_head import MultiHeadAttention

Scope = tuple[Tensor | None, TokenPositions]
"""What the queries of a pass may attend to: the mask, True = may attend, and the positions of queries and keys."""


class Residual(nn.Module):
    """The norm and the dropout of a residual connection around a sublayer f.

    norm "pre": x + dropout(f(norm(x))), Xiong et al. 2020, "On layer normalization in the Transformer architecture";
    "post": norm(x + dropout(f(x))), Vaswani et al. 2017, section 3.1.
    """

    def __init__(self, d_model: int, dropout: float, norm: str) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)
        self.norm_first = norm == "pre"

    def before(self, x: Tensor) -> Tensor:
        """What f reads, in the precision of its matrix products: cast once, and not by each of them."""
        x = self.norm(x) if self.norm_first else x
        return x.to(torch.get_autocast_dtype(x.device.type)) if torch.is_autocast_enabled(x.device.type) else x

    def after(self, x: Tensor, update: Tensor) -> Tensor:
        """x and the output of f together."""
        x = x + self.dropout(update)
        return x if self.norm_first else self.norm(x)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(
        self, self_attention: MultiHeadAttention, feed_forward: nn.Module, residual: Callable[[], Residual]
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.feed_forward = feed_forward
        self.residuals: Any = nn.ModuleList([residual(), residual()])

    def forward(
        self, x: Tensor, mask: Tensor | None, positions: TokenPositions, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """x [batch, source, d_model] and the weights [batch, head, source, source] if they were asked for."""
        first, second = self.residuals
        y = first.before(x)
        update, weights, _ = self.self_attention(y, self.self_attention.project(y), mask, positions, None, need_weights)
        x = first.after(x, update)
        return second.after(x, self.feed_forward(second.before(x))), weights


class DecoderLayer(nn.Module):
    """Causal self-attention, then attention to the source (the place of Bahdanau et al. 2015), then feed-forward."""

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        cross_attention: MultiHeadAttention,
        feed_forward: nn.Module,
        residual: Callable[[], Residual],
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.cross_attention = cross_attention
        self.feed_forward = feed_forward
        self.residuals: Any = nn.ModuleList([residual(), residual(), residual()])

    def forward(
        self, x: Tensor, state: LayerState, target: Scope, source: Scope, need_weights: bool
    ) -> tuple[Tensor, Tensor | None, Tensor | None, LayerState]:
        """One pass over x [batch, target, d_model]: in training, a whole target; in search, the newest token of each
        beam of a sentence, side by side. target, source: the scopes of self-attention and cross-attention.

        Returns the output [batch, target, d_model], weights of self- and cross-attention, and the new state.
        """
        first, second, third = self.residuals
        y = first.before(x)
        keys = self.self_attention.project(y, target[1].step)
        if state.past is not None:
            keys = KeysValues(*(torch.cat(both, dim=2) for both in zip(state.past, keys, strict=True)))
        update, self_weights, own = self.self_attention(y, keys, *target, state.own, need_weights)
        x = first.after(x, update)
        y = second.before(x)
        update, cross_weights, cross = self.cross_attention(y, state.memory, *source, state.cross, need_weights)
        x = second.after(x, update)
        x = third.after(x, self.feed_forward(third.before(x)))
        return x, self_weights, cross_weights, LayerState(state.memory, keys, own, cross)
