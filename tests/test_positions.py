"""Rotary positions against matrices that rotate; the other kinds are in test_transformer."""

import pytest
import torch
from built import built

from headcount.model.attention import ScaledDotProduct, TokenPositions
from headcount.model.multi_head import HeadPlan, MultiHeadAttention
from headcount.model.positions import Rotation

WHOLE = TokenPositions(torch.arange(5), torch.arange(5), None)


def make_rotation(d_head: int) -> Rotation:
    # A table that has to grow is made anew, in full precision.
    return Rotation(d_head, max_positions=1).double()


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
    rotation, x = make_rotation(d_head), torch.randn(2, 3, 40, d_head).double()
    torch.testing.assert_close(rotation(x, None), turned(x, torch.arange(40.0).double()), rtol=0, atol=1e-12)
    # In search all stand at one position.
    torch.testing.assert_close(rotation(x, 90), turned(x, torch.full((40,), 90.0).double()), rtol=0, atol=1e-12)


def test_attention_turns_queries_and_keys_and_not_values():
    torch.manual_seed(0)
    attention = MultiHeadAttention(12, HeadPlan(2, 6, 2), ScaledDotProduct, 0.0, rotary=1).double()
    x, positions = torch.randn(3, 5, 12).double(), torch.arange(5.0).double()
    query, key, value = (
        getattr(attention, name)(x).unflatten(2, (2, 6)).transpose(1, 2) for name in ("query", "key", "value")
    )
    weights = (turned(query, positions) @ turned(key, positions).transpose(2, 3) / 6**0.5).softmax(-1)
    expected = attention.output((weights @ value).transpose(1, 2).flatten(2))
    torch.testing.assert_close(attention(x, attention.project(x), None, WHOLE).output, expected, rtol=0, atol=1e-12)


def test_rotation_keeps_the_type_of_its_input():
    assert Rotation(4, 8)(torch.ones(1, 1, 3, 4, dtype=torch.bfloat16), None).dtype == torch.bfloat16


@pytest.mark.parametrize("positions", ["rotary", "sinusoidal"])
def test_a_table_that_search_made_longer_is_one_that_training_can_use(positions):
    torch.manual_seed(0)
    sizes = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "d_feed_forward": 8, "num_heads": 2}
    model = built("model/nano", vocab_size=12, positions=positions, max_positions=2, **sizes)
    source = torch.tensor([[5, 6, 7, 8, 3]])
    with torch.inference_mode():
        state = model.start(source, None)
        for token in range(4, 10):
            _, state = model.step(torch.tensor([token]), state)
    model.output(model(source, source > 0, torch.tensor([[2, 5, 6]]))).sum().backward()
    assert model.source_embedding.weight.grad is not None
