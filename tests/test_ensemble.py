"""Ensembles: the mean of several models' probabilities."""

import pytest
import torch
from built import ONE_LAYER, built
from toy import BOS, EOS, TableModel, every_translation

from headcount.data.tokenizer import BOS as BEGIN
from headcount.data.tokenizer import EOS as END
from headcount.data.tokenizer import PAD
from headcount.decoding.beam import Beams
from headcount.decoding.ensemble import Ensemble
from headcount.decoding.search import TranslationModel, search_loop
from headcount.decoding.translator import Translator
from headcount.model.transformer import Transformer


class Mean(TableModel):
    """The definition."""

    def __init__(self, members: list[TableModel]) -> None:
        super().__init__(members[0].vocab, 0)
        self.members = members

    def log_probs(self, history):
        return torch.stack([member.log_probs(history).exp() for member in self.members]).mean(dim=0).log()


def test_an_ensemble_has_the_mean_of_the_probabilities():
    members = [TableModel(vocab=5, seed=seed, sharpness=2.0) for seed in (1, 2, 3)]
    limits = torch.tensor([3, 2])
    state = [member.start([0, 1]) for member in members]
    beams = Beams(limits, 5**3, eos=EOS, alpha=0.0, count=6)
    found = search_loop(Ensemble(members), state, limits, beams, BOS, EOS)
    for sentence, limit in enumerate(limits.tolist()):
        expected = every_translation(Mean(members), sentence, limit)[:6]
        assert [tokens for tokens, _ in found[sentence][:6]] == [tokens for _, tokens in expected]
        assert [score for _, score in found[sentence][:6]] == pytest.approx([s for s, _ in expected], abs=1e-5)


class Numbers:
    def encode(self, texts: list[str]) -> list[list[int]]:
        return [[int(number) for number in text.split()] for text in texts]

    def decode(self, ids: list[list[int]]) -> list[str]:
        return [" ".join(map(str, row)) for row in ids]


def transformer(seed: int, **settings) -> Transformer:
    torch.manual_seed(seed)
    model = built("model/nano", vocab_size=30, **(ONE_LAYER | settings))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return model.eval()


LINES = [" ".join(str(4 + (3 * i + j * j) % 26) for j in range(1 + i % 9)) for i in range(30)]


@pytest.mark.medium
def test_models_of_any_size_go_together_and_batches_change_nothing():
    ensemble = Ensemble([transformer(1), transformer(2, head_size=4), transformer(3, norm="post")])
    assert isinstance(ensemble, TranslationModel)
    together, one_by_one = (
        Translator(
            ensemble,
            Numbers(),
            built("search/beam", beam=3, max_ratio=1, max_extra=2, batch_tokens=size),
            (PAD, BEGIN, END),
        ).nbest(LINES[:12], 3)
        for size in (2000, 1)
    )
    for batched, alone in zip(together, one_by_one, strict=True):
        assert [text for text, _ in batched] == [text for text, _ in alone]
        assert [score for _, score in batched] == pytest.approx([score for _, score in alone], abs=1e-4)
