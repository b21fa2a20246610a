"""Ensemble: several models translate with the mean of their probabilities."""

from collections.abc import Sequence
from math import log
from typing import Any

import torch
from torch import Tensor

from headcount.decoding.search import TranslationModel


class Ensemble:
    """A `TranslationModel` whose next token has the mean probability over its members: log (1/M sum_m p_m).

    fairseq does the same, and so does Sockeye by default (`linear`); its `log_linear` is the mean of the
    log-probabilities instead. The members share a vocabulary and a device.
    """

    def __init__(self, members: Sequence[TranslationModel]) -> None:
        self.members = members

    @property
    def device(self) -> torch.device:
        return self.members[0].device

    @property
    def max_length(self) -> int | None:
        return min((member.max_length for member in self.members if member.max_length is not None), default=None)

    def start(self, source: Tensor, source_mask: Tensor | None) -> list[Any]:
        return [member.start(source, source_mask) for member in self.members]

    def step(self, tokens: Tensor, state: list[Any]) -> tuple[Tensor, list[Any]]:
        results = [member.step(tokens, own) for member, own in zip(self.members, state, strict=True)]
        # Each member lets its caller write into its log-probabilities until its next step.
        mean, *others = (log_probs for log_probs, _ in results)
        for log_probs in others:
            torch.logaddexp(mean, log_probs, out=mean)
        return mean.sub_(log(len(self.members))), [own for _, own in results]

    def reorder(self, state: list[Any], rows: Tensor, sentences: Tensor) -> list[Any]:
        return [member.reorder(own, rows, sentences) for member, own in zip(self.members, state, strict=True)]
