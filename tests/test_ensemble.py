"""Ensembles: the mean of several models' probabilities; test_translator has ensembles of whole models."""

import pytest
import torch
from built import built
from toy import TableModel, every_translation, found_by

from headcount.decoding.ensemble import Ensemble
from headcount.decoding.search import TranslationModel


class Mean(TableModel):
    """The definition."""

    def __init__(self, members: list[TableModel]) -> None:
        super().__init__(members[0].vocab, 0)
        self.members = members

    def log_probs(self, history):
        return torch.stack([member.log_probs(history).exp() for member in self.members]).mean(dim=0).log()


def test_an_ensemble_has_the_mean_of_the_probabilities():
    members, limits = [TableModel(vocab=5, seed=seed, sharpness=2.0) for seed in (1, 2, 3)], [3, 2]
    ensemble = Ensemble(members)
    assert isinstance(ensemble, TranslationModel)
    found = found_by(built("search/beam", beam=5**3, alpha=0), ensemble, [0, 1], limits, 6)
    for sentence, limit in enumerate(limits):
        expected = every_translation(Mean(members), sentence, limit)[:6]
        assert [tokens for tokens, _ in found[sentence][:6]] == [tokens for _, tokens in expected]
        assert [score for _, score in found[sentence][:6]] == pytest.approx([s for s, _ in expected], abs=1e-5)
