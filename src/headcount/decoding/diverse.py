"""Diverse beam search: groups of beams, each penalised for the tokens of the groups before it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Lt
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headcount.decoding.beam import Beams, BeamSearch
from headcount.decoding.search import Hypotheses, Limits
from headcount.settings import Positive


@dataclass(frozen=True, kw_only=True)
class DiverseBeamSearch(BeamSearch):
    """Diverse beam search: Vijayakumar et al. 2018, "Diverse beam search", algorithm 1 with Hamming diversity. The beam
    is that of all groups together. Settings: conf/search/diverse.yaml."""

    groups: Positive | None
    diversity: Annotated[float, Ge(0), Lt(math.inf)]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.groups is not None and self.beam % self.groups:
            raise ValueError(
                f"search.groups={self.groups}: must divide search.beam={self.beam}, or be null for a group a hypothesis"
            )

    def begin(self, sources: list[list[int]], limits: Limits, count: int, eos: int) -> Hypotheses:
        groups = self.groups or self.beam
        size = self.beam // groups
        beams = [Beams(limits, size, eos=eos, alpha=self.alpha, count=min(count, size)) for _ in range(groups)]
        return Groups(beams, self.diversity)


class Groups:
    """Hypotheses of diverse beam search. At each step the first group chooses as if alone, and each later one by
    log p(token) - diversity x (hypotheses of earlier groups that have just chosen this token).

    The penalty only decides the choice at this step. Scores stay log-probabilities, so scores of all groups can be
    compared. An end-of-sentence costs nothing: it is no word of the translation.
    """

    def __init__(self, groups: Sequence[Beams], diversity: float) -> None:
        self.groups = groups
        self.diversity = diversity
        self.begun = False

    @property
    def done(self) -> Bool[Tensor, "sentence"]:
        return torch.stack([group.done for group in self.groups]).all(dim=0)

    def extend(
        self, log_probs: Float[Tensor, "sentence row vocab"]
    ) -> tuple[Int[Tensor, "sentence new_row"], Int[Tensor, "sentence new_row"]]:
        chosen = torch.zeros_like(log_probs[:, 0])  # [sentence, vocab], how often by the groups so far
        parents, tokens, first = [], [], 0
        for group in self.groups:
            width = group.scores.shape[1]
            parent, token = group.extend(log_probs[:, first : first + width], self.diversity * chosen)
            chosen.scatter_add_(1, token, (group.scores > float("-inf")).to(chosen.dtype))
            parents.append(first + parent)
            tokens.append(token)
            first += width if self.begun else 0  # before the first step all groups share one row
        self.begun = True
        return torch.cat(parents, dim=1), torch.cat(tokens, dim=1)

    def select(self, sentences: Int[Tensor, "kept"]) -> None:
        for group in self.groups:
            group.select(sentences)

    def finished(self, sentences: Int[Tensor, "some"]) -> tuple[Tensor, Tensor]:
        """Those of all groups, best first; two groups may have the same."""
        found = zip(*(group.finished(sentences) for group in self.groups), strict=True)
        tokens, scores = (torch.cat(parts, dim=1) for parts in found)
        scores, order = scores.sort(dim=1, descending=True, stable=True)
        return tokens.take_along_dim(order[:, :, None], 1), scores
