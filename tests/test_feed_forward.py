"""Feed-forward layers against their equations."""

import pytest
import torch
from torch import nn

from headcount.model.feed_forward import FEED_FORWARDS, balanced_feed_forward

D_MODEL, D_HIDDEN = 3, 5


def gelu(x: torch.Tensor) -> torch.Tensor:
    return x * (1 + torch.erf(x / 2**0.5)) / 2


def swiglu(x: torch.Tensor, gate: nn.Linear, up: nn.Linear, down: nn.Linear) -> torch.Tensor:
    return down(gate(x) * torch.sigmoid(gate(x)) * up(x))


EQUATIONS = {
    "relu": lambda x, first, second: second(first(x).clamp(min=0)),
    "gelu": lambda x, first, second: second(gelu(first(x))),
    "swiglu": swiglu,
}
WITH_BIASES = 2 * D_MODEL * D_HIDDEN + D_HIDDEN + D_MODEL


@pytest.mark.parametrize(
    ("kind", "parameters"), [("relu", WITH_BIASES), ("gelu", WITH_BIASES), ("swiglu", 3 * D_MODEL * D_HIDDEN)]
)
def test_feed_forward_is_its_equation(kind, parameters):
    torch.manual_seed(0)
    feed_forward = FEED_FORWARDS[kind](D_MODEL, D_HIDDEN, dropout=0.5).double().eval()
    assert sum(parameter.numel() for parameter in feed_forward.parameters()) == parameters
    layers = [module for module in feed_forward.modules() if isinstance(module, nn.Linear)]
    x = torch.randn(2, 4, D_MODEL).double()
    torch.testing.assert_close(feed_forward(x), EQUATIONS[kind](x, *layers), rtol=0, atol=1e-12)
    feed_forward.train()
    assert not torch.equal(feed_forward(x), feed_forward(x))  # of the dropout inside


@pytest.mark.parametrize(("kind", "unit"), [("relu", 2 * 128 + 1), ("gelu", 2 * 128 + 1), ("swiglu", 3 * 128)])
def test_the_feed_forward_gets_the_parameters_that_heads_leave(kind, unit):
    assert balanced_feed_forward(256, 128, 8, 16, 2, 2, kind) == 256
    # An attention of one head of 16 has 7 / 8 of 4 x 128 x 128 weights less (and biases); there are six of them, and
    # four feed-forwards. A unit has 2 x 128 weights and a bias, of SwiGLU 3 x 128 weights.
    assert balanced_feed_forward(256, 128, 1, 16, 2, 2, kind) == 256 + round(7 * 16 * (4 * 128 + 3) * 6 / (4 * unit))
    # Sixteen wide keys and values beside full queries save 7 / 8 of 2 x 128 x 128 weights and of two biases.
    shared = balanced_feed_forward(256, 128, 8, 16, 2, 2, kind, kv_heads=1)
    assert shared == 256 + round(7 * 16 * (2 * 128 + 2) * 6 / (4 * unit))
