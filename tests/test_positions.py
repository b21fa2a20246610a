"""Rotary positions against matrices that rotate; the other kinds are in test_transformer."""

import pytest
import torch
from built import ONE_LAYER, built

from headcount.model.positions import Rotation


def turned(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Each pair of numbers times a matrix that rotates by position times theta: Su et al. 2021, equations 14 and 15."""
    size = x.shape[-1]
    theta = torch.tensor([10_000 ** (-2 * i / size) for i in range(size // 2)], dtype=torch.float64)
    angle = positions[:, None] * theta
    rows = [torch.stack([angle.cos(), -angle.sin()], dim=-1), torch.stack([angle.sin(), angle.cos()], dim=-1)]
    return (torch.stack(rows, dim=-2) @ x.unflatten(-1, (-1, 2))[..., None]).flatten(-3)


@pytest.mark.parametrize("d_head", [2, 6, 16])
def test_rotation_is_that_of_the_paper(d_head):
    torch.manual_seed(0)
    # A table that has to grow is made anew, in full precision.
    rotation, x = Rotation(d_head, max_positions=1).double(), torch.randn(2, 3, 40, d_head).double()
    torch.testing.assert_close(rotation(x, None), turned(x, torch.arange(40.0).double()), rtol=0, atol=1e-12)
    # In search all stand at one position.
    torch.testing.assert_close(rotation(x, 90), turned(x, torch.full((40,), 90.0).double()), rtol=0, atol=1e-12)
    assert rotation(x.bfloat16(), None).dtype == torch.bfloat16  # mixed precision goes on in the narrower type


@pytest.mark.parametrize("positions", ["rotary", "sinusoidal"])
def test_a_table_that_search_made_longer_is_one_that_training_can_use(positions):
    model = built("model/nano", vocab_size=12, positions=positions, max_positions=2, **ONE_LAYER)
    source = torch.tensor([[5, 6, 7, 8, 3]])
    with torch.inference_mode():
        state = model.start(source, None)
        for token in range(4, 10):
            _, state = model.step(torch.tensor([token]), state)
    model.output(model(source, source > 0, torch.tensor([[2, 5, 6]]))).sum().backward()
    assert model.source_embedding.weight.grad is not None
