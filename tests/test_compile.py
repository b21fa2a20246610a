"""torch.compile takes a Transformer as one graph, and another one for all other shapes of batches."""

import jaxtyping
import pytest
import torch
from built import random_model

SHAPES = [(4, 7, 9), (8, 12, 13), (2, 5, 6), (3, 20, 21)]


@pytest.fixture(autouse=True)
def compiler():
    """No graphs of before, and no checks of shapes, which are not compiled."""
    torch.compiler.reset()
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


class Counted:
    """A backend that runs each graph as it is."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph, inputs):
        self.graphs += 1
        return graph.forward


def batch(rows: int, source: int, target: int) -> tuple[torch.Tensor, ...]:
    mask = torch.ones(rows, source, dtype=torch.bool)
    mask[0, -1] = False
    return torch.randint(4, 12, (rows, source)), mask, torch.randint(4, 12, (rows, target))


@pytest.mark.medium
@pytest.mark.parametrize("settings", [{}, {"head_gate": "element"}])
def test_compiled_layers_share_their_kernels_and_act_in_training_alone(settings):
    model, plain = (random_model(12, encoder_layers=3, decoder_layers=3, **settings).train() for _ in range(2))
    plain.load_state_dict(model.state_dict())
    backend = Counted()
    model.compile_layers(backend)
    for given in (batch(*shape) for shape in SHAPES):
        outputs = [each(*given) for each in (model, plain)]
        torch.testing.assert_close(*outputs)
        for output in outputs:
            output.square().sum().backward()
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-4, rtol=1e-4)
    assert 2 <= backend.graphs <= 4
    model.eval()
    backend.graphs = 0
    model(*batch(5, 9, 17))
    assert backend.graphs == 0
    assert not any("_orig_mod" in name for name in model.state_dict())
