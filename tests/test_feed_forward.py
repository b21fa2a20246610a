"""Feed-forward layers, number by number."""

import math

import pytest
import torch
from torch import nn

from headcount.model.feed_forward import FEED_FORWARDS, balanced_feed_forward

D_MODEL, D_HIDDEN = 3, 5


def relu(x: list[float], first: nn.Linear, second: nn.Linear) -> list[float]:
    return linear([max(0.0, h) for h in linear(x, first)], second)


def gelu(x: list[float], first: nn.Linear, second: nn.Linear) -> list[float]:
    return linear([h * (1 + math.erf(h / 2**0.5)) / 2 for h in linear(x, first)], second)


def swiglu(x: list[float], gate: nn.Linear, up: nn.Linear, down: nn.Linear) -> list[float]:
    gated = [g / (1 + math.exp(-g)) * h for g, h in zip(linear(x, gate), linear(x, up), strict=True)]
    return linear(gated, down)


def linear(x: list[float], layer: nn.Linear) -> list[float]:
    bias = [0.0] * layer.out_features if layer.bias is None else layer.bias.tolist()
    return [
        b + sum(w * n for w, n in zip(row, x, strict=True)) for row, b in zip(layer.weight.tolist(), bias, strict=True)
    ]


@pytest.mark.parametrize(
    ("kind", "expected", "parameters"),
    [
        ("relu", relu, 2 * D_MODEL * D_HIDDEN + D_HIDDEN + D_MODEL),
        ("gelu", gelu, 2 * D_MODEL * D_HIDDEN + D_HIDDEN + D_MODEL),
        ("swiglu", swiglu, 3 * D_MODEL * D_HIDDEN),
    ],
)
def test_feed_forward_is_its_equation(kind, expected, parameters):
    torch.manual_seed(0)
    feed_forward = FEED_FORWARDS[kind](D_MODEL, D_HIDDEN, dropout=0.5).double().eval()
    assert sum(parameter.numel() for parameter in feed_forward.parameters()) == parameters
    layers = [module for module in feed_forward.modules() if isinstance(module, nn.Linear)]
    x = torch.randn(2, 4, D_MODEL).double()
    for position, output in zip(x.flatten(0, 1), feed_forward(x).flatten(0, 1), strict=True):
        assert output.tolist() == pytest.approx(expected(position.tolist(), *layers), abs=1e-12)
    feed_forward.train()
    assert not torch.equal(feed_forward(x), feed_forward(x))  # of the dropout inside


@pytest.mark.parametrize(("kind", "unit"), [("relu", 2 * 128 + 1), ("gelu", 2 * 128 + 1), ("swiglu", 3 * 128)])
def test_the_feed_forward_gets_the_parameters_that_heads_leave(kind, unit):
    assert balanced_feed_forward(256, 128, 8, 16, 2, 2, kind) == 256
    # An attention of one head of 16 has 7 / 8 of 4 x 128 x 128 weights less (and biases); there are six of them, and
    # four feed-forwards. A unit has 2 x 128 weights and a bias, of SwiGLU 3 x 128 weights.
    assert balanced_feed_forward(256, 128, 1, 16, 2, 2, kind) == 256 + round(7 * 16 * (4 * 128 + 3) * 6 / (4 * unit))
