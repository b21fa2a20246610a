"""The Lightning module: steps, optimizer, validation."""

import pytest
import torch
from built import built
from torch import Tensor

from headcount.data.batches import Sentences, collate
from headcount.training.loss import RDrop
from headcount.training.module import TranslationTask


def task(loss=None, **settings) -> TranslationTask:
    torch.manual_seed(0)
    sizes = {"d_model": 8, "d_feed_forward": 8, "num_heads": 2, "encoder_layers": 4, "decoder_layers": 4}
    model = built("model/nano", vocab_size=12, **sizes, dropout=0.0, **settings)
    return TranslationTask(
        model=model,
        loss=loss,
        optimizer=torch.optim.AdamW,
        schedule=lambda step: 1.0,
        translator=None,
        sources=[],
        references=[],
        bleu_tokenizer="13a",
        samples=0,
        seed=1,
    )


class Recorded(RDrop):
    """R-Drop that keeps what it was given."""

    def __call__(self, hidden: Tensor, weight: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        self.hidden = hidden
        return super().__call__(hidden, weight, labels)


@pytest.mark.parametrize(("layer_dropout", "alike"), [(0.0, True), (0.5, False)])
def test_the_two_passes_of_r_drop_leave_out_layers_of_their_own(layer_dropout, alike):
    loss = Recorded(alpha=5.0, smoothing=0.1)
    trained = task(loss, layer_dropout=layer_dropout)
    sentences = Sentences.of([[5, 6, 7], [8, 9]])
    torch.manual_seed(1)
    trained._losses(collate(sentences, sentences, torch.arange(2).numpy(), 7), loss)
    first, second = loss.hidden.chunk(2)
    assert torch.allclose(first, second, atol=1e-6) == alike


@pytest.mark.parametrize("attend", ["gaussian_window", "luong_general"])
def test_weight_decay_leaves_out_biases_norms_and_what_a_score_has_of_its_own(attend):
    trained = task(cross_attention=built(f"model/cross_attention/{attend}"))
    decayed, rest = trained.configure_optimizers()["optimizer"].param_groups
    assert decayed["weight_decay"] > 0 == rest["weight_decay"]
    assert len(decayed["params"]) + len(rest["params"]) == len(list(trained.model.parameters()))
    own = [id(p) for layer in trained.model.decoder for p in layer.cross_attention.attend.parameters()]
    assert own
    assert not set(own) & {id(p) for p in decayed["params"]}
    assert {p.dim() for p in decayed["params"]} == {2}
