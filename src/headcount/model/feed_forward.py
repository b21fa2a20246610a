"""Position-wise feed-forward sublayers: ReLU, GELU and SwiGLU."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from headcount.model.dropout import Dropout


class ReluFeedForward(nn.Sequential):
    """max(0, x W_1 + b_1) W_2 + b_2: Vaswani et al. 2017, equation 2."""

    def __init__(self, d_model: int, d_hidden: int, dropout: float) -> None:
        super().__init__(nn.Linear(d_model, d_hidden), nn.ReLU(), Dropout(dropout), nn.Linear(d_hidden, d_model))


class GeluFeedForward(nn.Sequential):
    """GELU(x W_1 + b_1) W_2 + b_2, where GELU(x) = x P(X <= x) for a standard normal X, exactly: Hendrycks and Gimpel
    2016, "Gaussian error linear units", section 2."""

    def __init__(self, d_model: int, d_hidden: int, dropout: float) -> None:
        super().__init__(nn.Linear(d_model, d_hidden), nn.GELU(), Dropout(dropout), nn.Linear(d_hidden, d_model))


class SwigluFeedForward(nn.Module):
    """(swish(x W) * x V) W_2, where swish(x) = x sigmoid(x): Shazeer 2020, "GLU variants improve Transformer",
    equation 6, without biases as there.

    Three matrices of d_model x d_hidden, not two: with two thirds of the d_hidden it has as many parameters as the
    other kinds.
    """

    def __init__(self, d_model: int, d_hidden: int, dropout: float) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_hidden, bias=False)
        self.up = nn.Linear(d_model, d_hidden, bias=False)
        self.down = nn.Linear(d_hidden, d_model, bias=False)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.dropout(F.silu(self.gate(x)) * self.up(x)))


FEED_FORWARDS: dict[str, Any] = {"relu": ReluFeedForward, "gelu": GeluFeedForward, "swiglu": SwigluFeedForward}


def balanced_feed_forward(
    width: int,
    d_model: int,
    heads: int,
    head_size: int | None,
    encoder_layers: int,
    decoder_layers: int,
    kind: str,
    kv_heads: int | None = None,
) -> int:
    """Width of the feed-forward that gives a model with `heads` as many parameters as one whose heads fill d_model and
    whose feed-forward is `width` wide: Shazeer 2019, Table 1. head_size: None: heads fill d_model. kind: of
    `FEED_FORWARDS`. kv_heads: heads of keys and values; None: as many as heads."""
    layers, attentions = encoder_layers + decoder_layers, encoder_layers + 2 * decoder_layers
    head_size = head_size or d_model // heads
    queries = (d_model - heads * head_size) * (2 * d_model + 1)  # and the output projection, whose bias stays
    keys = (d_model - (kv_heads or heads) * head_size) * (2 * d_model + 2)  # and values
    saved = (queries + keys) * attentions
    return width + round(saved / (layers * (3 * d_model if kind == "swiglu" else 2 * d_model + 1)))
