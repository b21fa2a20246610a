"""The Lightning module: steps, optimizer, validation."""

import pytest
import torch
from built import built, task_without_data
from torch import Tensor

from headcount.data.batches import Sentences, collate
from headcount.data.tokenizer import BOS, EOS, PAD
from headcount.training.cutoff import token_cutoff
from headcount.training.loss import RDrop, SimCut
from headcount.training.module import TranslationTask


def task(loss=None, **settings) -> TranslationTask:
    torch.manual_seed(0)
    sizes = {"d_model": 8, "d_feed_forward": 8, "num_heads": 2, "encoder_layers": 4, "decoder_layers": 4}
    model = built("model/nano", vocab_size=12, **sizes, dropout=0.0, **settings)
    return task_without_data(model, loss)


class Recording:
    """A loss that keeps what it was given."""

    def __call__(self, hidden: Tensor, weight: Tensor, labels: Tensor, cap: float | None) -> tuple[Tensor, Tensor]:
        self.hidden = hidden
        return super().__call__(hidden, weight, labels, cap)


class Recorded(Recording, RDrop):
    pass


class RecordedCut(Recording, SimCut):
    pass


@pytest.mark.parametrize(("layer_dropout", "alike"), [(0.0, True), (0.5, False)])
def test_the_two_passes_of_r_drop_leave_out_layers_of_their_own(layer_dropout, alike):
    loss = Recorded(alpha=5.0, smoothing=0.1, start=0)
    trained = task(loss, layer_dropout=layer_dropout)
    sentences = Sentences.of([[5, 6, 7], [8, 9]])
    torch.manual_seed(1)
    trained._losses(collate(sentences, sentences, torch.arange(2).numpy(), 7), loss)
    first, second = loss.hidden.chunk(2)
    assert torch.allclose(first, second, atol=1e-6) == alike


TOKENS = torch.tensor([[BOS, 5, 6, 7, EOS, PAD]]).repeat(400, 1)


@pytest.mark.parametrize("kind", ["nano", "rnn_luong"])
def test_token_cutoff_zeroes_whole_embeddings_of_all_but_the_first_rows(kind):
    model = built(f"model/{kind}", vocab_size=12, tied_embeddings=False)
    torch.manual_seed(0)
    for embedding in (model.source_embedding, model.target_embedding):
        plain = embedding(TOKENS)
        with token_cutoff(model, 0.3, whole=3):
            cut = embedding(TOKENS)
        lacks = (cut == 0).all(dim=2)
        assert torch.equal(cut[~lacks], plain[~lacks])  # nothing is scaled
        assert not lacks[:3].any()
        assert not lacks[:, [0, 4]].any()  # begin and end of sentence
        assert lacks[3:, 1:4].double().mean().item() == pytest.approx(0.3, abs=0.04)
        assert torch.equal(embedding(TOKENS), plain)


@pytest.mark.parametrize("layer_dropout", [0.0, 1e-12])  # 1e-12: one batch a pass, though no layer is left out
def test_the_second_pass_of_simcut_alone_lacks_tokens(layer_dropout):
    loss = RecordedCut(alpha=3.0, p_cut=1 - 1e-7, smoothing=0.1, start=0)
    trained = task(loss, layer_dropout=layer_dropout)
    sentences = Sentences.of([[5, 6, 7], [8, 9, 10]])
    batch = collate(sentences, sentences, torch.arange(2).numpy(), 8)
    inputs = batch.source, batch.source_mask, batch.target_in
    trained._losses(batch, loss)
    whole, cut = loss.hidden.chunk(2)
    assert torch.allclose(whole, trained.model(*inputs).flatten(0, 1), atol=1e-6)
    with token_cutoff(trained.model, 1 - 1e-7, whole=0):
        expected = trained.model(*inputs).flatten(0, 1)
    assert torch.allclose(cut, expected, atol=1e-6)
    assert not torch.allclose(cut, whole, atol=1e-2)


@pytest.mark.parametrize("attend", ["gaussian_window", "luong_general"])
def test_weight_decay_leaves_out_biases_norms_and_what_a_score_has_of_its_own(attend):
    trained = task(cross_attention=built(f"attention/{attend}"))
    decayed, rest = trained.configure_optimizers()["optimizer"].param_groups
    assert decayed["weight_decay"] > 0 == rest["weight_decay"]
    assert len(decayed["params"]) + len(rest["params"]) == len(list(trained.model.parameters()))
    own = [id(p) for layer in trained.model.decoder for p in layer.cross_attention.attend.parameters()]
    assert own
    assert not set(own) & {id(p) for p in decayed["params"]}
    assert {p.dim() for p in decayed["params"]} == {2}
