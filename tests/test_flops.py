"""Operations per token of a model."""

import pytest
from built import built

from headcount.model.flops import operations_per_token

SOURCE, TARGET = 7, 5
SIZES = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "d_feed_forward": 48}


def by_hand(vocab, d_model, d_feed_forward, heads, head_size, kv_heads):
    """Multiply-adds of a model with one layer on each side, for the whole pair."""

    def attention(queries, keys):
        width, shared = heads * head_size, kv_heads * head_size
        projections = 2 * queries * d_model * width + 2 * keys * d_model * shared
        return projections + 2 * queries * keys * width  # scores, and the weighted sum

    feed_forward = 2 * d_model * d_feed_forward
    encoder = attention(SOURCE, SOURCE) + SOURCE * feed_forward
    decoder = attention(TARGET, TARGET) + attention(TARGET, SOURCE) + TARGET * feed_forward
    return encoder + decoder + TARGET * d_model * vocab


@pytest.mark.parametrize(
    ("heads", "head_size", "kv_heads"), [(1, None, None), (8, None, None), (8, None, 2), (4, 16, None), (8, None, 1)]
)
def test_operations_are_those_counted_by_hand(heads, head_size, kv_heads):
    model = built("model/nano", vocab_size=50, **SIZES, num_heads=heads, head_size=head_size, kv_heads=kv_heads).train()
    expected = by_hand(50, 32, 48, heads, head_size or 32 // heads, kv_heads or heads)
    assert operations_per_token(model, SOURCE, TARGET) == round(expected / (SOURCE + TARGET))
    assert model.training


@pytest.mark.parametrize(("kind", "width"), [("head", 8), ("element", 32)])
def test_operations_of_gates_are_counted(kind, width):
    model = built("model/nano", vocab_size=50, **SIZES, num_heads=8, head_gate=kind)
    expected = by_hand(50, 32, 48, 8, 4, 8) + (SOURCE + 2 * TARGET) * 32 * width
    assert operations_per_token(model, SOURCE, TARGET) == round(expected / (SOURCE + TARGET))
