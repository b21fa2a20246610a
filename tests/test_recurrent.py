"""Recurrent encoder-decoders: against their equations, step by step, and their invariants."""

import pytest
import torch
from built import built
from invariants import check_cached_decoding, check_padding_changes_nothing, check_reorder
from torch import nn

from headcount.model.attention import TokenPositions
from headcount.model.flops import operations_per_token
from headcount.model.recurrent import Recurrent

KINDS = {"rnn": 1, "rnn_bahdanau": 1, "rnn_luong": 2, "rnn_graves": 1}  # option: heads
each = pytest.mark.parametrize("kind", KINDS)


def make(kind: str, **changes: object) -> Recurrent:
    torch.manual_seed(0)
    small = {"vocab_size": 11, "d_model": 8, "dropout": 0.0, "num_heads": KINDS[kind]}
    return built(f"model/{kind}", **(small | changes)).double().eval()


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    source = torch.randint(4, 11, (3, 6))
    mask = torch.arange(6) < torch.tensor([4, 6, 1])[:, None]
    return source.masked_fill(~mask, 0), mask, torch.randint(4, 11, (3, 5))


def cell_of(layer: nn.GRU | nn.LSTM, suffix: str = "") -> nn.GRUCell | nn.LSTMCell:
    """A single step with a layer's weights."""
    kind = nn.GRUCell if isinstance(layer, nn.GRU) else nn.LSTMCell
    cell = kind(layer.input_size, layer.hidden_size).double()
    with torch.no_grad():
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(cell, name).copy_(getattr(layer, f"{name}_l0{suffix}"))
    return cell


def of(state: object) -> torch.Tensor:
    """What a cell shows of its state."""
    return state[0] if isinstance(state, tuple) else state


@each
def test_one_sentence_by_the_equations(kind):
    model, (source, _, target) = make(kind), batch()
    source, target = source[1:2], target[1:2]
    words = model.source_embedding(source)[0] * 8**0.5
    forth, back, writer = cell_of(model.encoder), cell_of(model.encoder, "_reverse"), cell_of(model.decoder)
    there, here = [], []
    for cell, order, states in ((forth, range(6), there), (back, range(5, -1, -1), here)):
        state = None
        for position in order:
            state = cell(words[position : position + 1], state)
            states.append(of(state))
    annotations = torch.cat([torch.stack(there, 1), torch.stack(here[::-1], 1)], dim=2)
    begun = torch.tanh(model.first(torch.cat([there[-1], here[-1]], dim=1)))
    state = (begun, torch.zeros_like(begun)) if kind in ("rnn_luong", "rnn_graves") else begun
    attention, fed, outputs = model.attention, torch.zeros_like(begun), []
    memory = attention and attention.project(annotations)
    window = attention and attention.attend.begin(1)
    positions = TokenPositions(torch.arange(1), torch.arange(6), None)  # a window asks for those of the keys
    for word in model.target_embedding(target)[0] * 8**0.5:
        if attention is None:
            state = writer(word[None], state)
            outputs.append(of(state))
            continue
        if kind == "rnn_bahdanau":
            context, _, window = attention(of(state)[:, None], memory, None, positions, window)
            state = writer(torch.cat([word[None], context[:, 0]], dim=1), state)
        else:
            state = writer(torch.cat([word[None], fed], dim=1), state)
            context, _, window = attention(of(state)[:, None], memory, None, positions, window)
        outputs.append(torch.tanh(model.combine(torch.cat([context[:, 0], of(state)], dim=1))))
        fed = context[:, 0] if kind == "rnn_graves" else outputs[-1]
    found = model(source, torch.ones_like(source, dtype=torch.bool), target)
    torch.testing.assert_close(found[0], torch.cat(outputs), rtol=0, atol=1e-12)


@each
def test_padding_and_company_change_nothing(kind):
    check_padding_changes_nothing(make(kind), batch())


@each
@pytest.mark.parametrize("beam", [1, 3])
def test_cached_decoding_equals_uncached(kind, beam):
    check_cached_decoding(make(kind), batch(), beam)


@each
def test_reorder_follows_rows_and_drops_sentences(kind):
    check_reorder(make(kind), batch())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "rnn"])
def test_weights_are_those_of_every_head(kind):
    model, (source, mask, target) = make(kind), batch()
    encoder, decoder, (weights,) = model.attention_weights(source, mask, target)
    assert (encoder, decoder) == ([], [])
    assert weights.shape == (3, model.head_counts["cross_heads"][0], 5, 6)
    assert not weights.masked_select(~mask[:, None, None]).any()
    if kind != "rnn_graves":
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


@each
def test_every_weight_learns(kind):
    model, (source, mask, target) = make(kind).train(), batch()
    model.output(model(source, mask, target)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(("cell", "gates"), [("gru", 3), ("lstm", 4)])
def test_operations_of_a_cell_are_counted(cell, gates):
    model, width, vocab = built("model/rnn", vocab_size=50, d_model=16, cell=cell, look="none"), 16, 50
    encoder = 2 * gates * (width * width // 2 + (width // 2) ** 2)  # two directions, each half as wide
    decoder = gates * 2 * width * width
    expected = 6 * encoder + width * width + 5 * (decoder + width * vocab)
    assert operations_per_token(model, 6, 5) == round(expected / (6 + 5))


def test_an_odd_width_gets_one_line():
    with pytest.raises(ValueError, match=r"model\.d_model=7: must be even"):
        make("rnn_bahdanau", d_model=7)


def test_half_precision_reads_a_long_source_to_its_end():
    """bfloat16 holds whole numbers up to 256 alone."""
    model = make("rnn").bfloat16()
    source = torch.randint(4, 11, (1, 257))
    alone, masked = model.start(source, None), model.start(source, torch.ones(1, 257, dtype=torch.bool))
    assert torch.equal(alone.cell[0], masked.cell[0])
    assert not torch.equal(alone.cell[0], model.start(source[:, :256], None).cell[0])
