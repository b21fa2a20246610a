"""Interventions on heads: a gate of zero is a head cut out, and a context always restores."""

import numpy as np
import pytest
import torch
from built import ONE_LAYER, built

from headcount.data.batches import Sentences
from headcount.errors import InputError
from headcount.heads.ablation import Bank, only_each, without_each
from headcount.heads.interface import Heads, Layer
from headcount.heads.likelihood import token_log_probs

VOCAB = 30


@pytest.fixture(scope="module")
def heads():
    torch.manual_seed(1)
    return Heads(built("model/nano", **{**ONE_LAYER, "decoder_layers": 2}, vocab_size=VOCAB).eval())


@pytest.fixture(scope="module")
def sentences():
    random = np.random.default_rng(0)
    sides = [[random.integers(4, VOCAB, length).tolist() for length in random.integers(2, 9, 12)] for _ in range(2)]
    return [Sentences.of(side) for side in sides]


def test_names_are_in_a_fixed_order(heads):
    names = "encoder1.1 encoder1.2 decoder1.1 decoder1.2 decoder2.1 decoder2.2 cross1.1 cross1.2 cross2.1 cross2.2"
    assert heads.labels.tolist() == list(map(str, heads.names)) == names.split()


def test_a_model_without_such_heads_is_refused():
    with pytest.raises(InputError, match="Recurrent has no heads"):
        Heads(built("model/rnn", vocab_size=VOCAB, d_model=16))


@pytest.mark.medium
def test_many_settings_at_once_are_those_one_at_a_time(heads, sentences):
    gates = torch.cat([without_each(heads), only_each(heads), torch.rand(3, len(heads))])
    together = token_log_probs(heads, *sentences, gates)
    for row, gate in enumerate(gates):
        alone = token_log_probs(heads, *sentences, gate[None])
        assert np.abs(together.values[row] - alone.values[0]).max() < 1e-5
    ends = np.cumsum(together.lengths)
    parts = np.split(together.values.astype(float), ends[:-1], axis=1)
    assert np.allclose(together.sums, np.stack([part.sum(axis=1) for part in parts], axis=1))


def test_a_fill_of_zeros_is_a_gate_of_zero_and_its_own_output_changes_nothing(heads, sentences):
    gates = without_each(heads)
    zero = token_log_probs(heads, *sentences, gates)
    filled = token_log_probs(heads, *sentences, gates, lambda layer, output: torch.zeros_like(output))
    assert np.abs(zero.values - filled.values).max() < 1e-5
    itself = token_log_probs(heads, *sentences, gates, lambda layer, output: output)
    assert np.abs(itself.values - zero.values[:1]).max() < 1e-6


def test_a_resampled_output_is_one_of_the_bank(heads):
    layer = Layer("cross", 1)
    outputs = torch.randn(2, 5, 8)
    bank = Bank({layer: outputs})
    drawn = bank.resampled(0)(layer, torch.zeros(3, 2, 4, 8))
    for head in range(2):
        assert all(any(row.equal(each) for each in outputs[head]) for row in drawn[:, head].flatten(0, 1))
    assert bank.mean(layer, drawn).squeeze().allclose(outputs.mean(1))


@torch.no_grad()
def test_recorded_outputs_put_back_change_nothing_and_another_sentences_do(heads):
    source, target = torch.randint(4, VOCAB, (2, 3, 6))
    mask = torch.ones(3, 6, dtype=torch.bool)
    with heads.recorded() as records:
        whole = heads.model(source, mask, target)
    own = {head: records[head.place][0][:, head.head - 1] for head in heads.names}
    with heads.patched(own):
        assert heads.model(source, mask, target).allclose(whole, atol=1e-6)
    for head in heads.names:
        other = own[head].roll(1, dims=0)
        with heads.patched({head: other}):
            patched = heads.model(source, mask, target)
        assert not patched.allclose(whole, atol=1e-4)
        keeps = torch.full_like(other, torch.nan)
        keeps[1:] = other[1:]  # NaN keeps what the first sentence has
        with heads.patched({head: keeps}):
            torch.testing.assert_close(heads.model(source, mask, target), torch.cat([whole[:1], patched[1:]]))
