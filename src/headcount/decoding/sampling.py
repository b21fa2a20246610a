"""Ancestral sampling, with temperature, top-k and nucleus (top-p) truncation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Gt, Le
from jaxtyping import Float, Int
from torch import Tensor

from headcount.decoding.search import (
    NOT_FINITE,
    Decode,
    Hypotheses,
    Hypothesis,
    Limits,
    NotFiniteError,
    Rows,
    SearchMethod,
    Translation,
)
from headcount.devices import cumulative_sum
from headcount.settings import Natural, Positive


@dataclass(frozen=True, kw_only=True)
class Sampling(SearchMethod):
    """Ancestral sampling: each token is drawn from the model's distribution, given those before it.

    Samples are given as drawn, neither sorted nor made distinct, and their score is the model's own log-probability,
    whatever the settings here (conf/search/beam.yaml). top_k: Fan et al. 2018; top_p, after the cut to k: Holtzman et
    al. 2020, "The curious case of neural text degeneration", section 3.1.

    What is drawn for a source follows from `seed` and the source only, but for rounding: not from the batch, nor from
    the other lines. So a line that comes twice gets the same translation twice; `samples` gives several.
    """

    width_setting = "samples"

    samples: Rows
    temperature: Annotated[float, Ge(0.001), Le(1000)]
    top_k: Positive | None
    top_p: Annotated[float, Gt(0), Le(1)] | None
    seed: Natural

    def rows(self, count: int) -> int:
        super().rows(count)  # raises InputError
        return count  # the first samples are the same, however many follow

    def begin(self, sources: list[list[int]], limits: Limits, count: int, eos: int) -> Hypotheses:
        steps, samples = (limits + 1).tolist(), self.rows(count)
        noise = np.zeros((len(sources), samples, max(steps)), dtype=np.float32)
        for row, source, length in zip(noise, sources, steps, strict=True):
            row[:, :length] = np.random.default_rng([self.seed, *source]).random((samples, length), np.float32)
        return Samples(torch.from_numpy(noise).to(limits.device), self.draw, eos)

    def choose(self, found: list[list[Hypothesis]], count: int, decode: Decode) -> list[list[Translation]]:
        found = [hypotheses[:count] for hypotheses in found]
        texts = iter(decode([tokens for hypotheses in found for tokens, _ in hypotheses]))
        return [[Translation(next(texts), score) for _, score in hypotheses] for hypotheses in found]

    def draw(
        self, log_probs: Float[Tensor, "row vocab"], uniform: Float[Tensor, "row draw"]
    ) -> Int[Tensor, "row draw"]:
        """Tokens drawn by the inverse of the cumulative distribution; uniform: random numbers from [0, 1)."""
        scores, tokens = log_probs / self.temperature, None
        if self.top_k is not None:
            scores, tokens = scores.topk(min(self.top_k, scores.shape[1]), dim=1)
        elif self.top_p is not None:
            scores, tokens = scores.sort(dim=1, descending=True)
        cumulative = cumulative_sum(scores.softmax(dim=1), dim=1)
        last = torch.full_like(cumulative[:, :1], cumulative.shape[1] - 1, dtype=torch.long)
        if self.top_p is not None:
            last = torch.minimum(last, (cumulative < self.top_p).sum(dim=1, keepdim=True))
        mass = cumulative.gather(1, last)
        # Without a distribution to draw from, the score is not finite either: an accelerator is not waited for.
        if mass.device.type == "cpu" and not bool(mass.isfinite().all()):
            raise NotFiniteError(NOT_FINITE)
        # The first whose cumulative probability is above the number, so never one without any; the last is the limit
        # where sums are not made in order, as on a GPU.
        drawn = torch.minimum(torch.searchsorted(cumulative, uniform * mass, right=True), last)
        return drawn if tokens is None else tokens.gather(1, drawn)


class Samples:
    """Hypotheses of sampling, independent of each other.

    noise: numbers from [0, 1), one for each token of each sample. draw: from log-probabilities [row, vocab] and numbers
    [row, draw] to tokens [row, draw].
    """

    def __init__(
        self, noise: Float[Tensor, "sentence sample step"], draw: Callable[[Tensor, Tensor], Tensor], eos: int
    ) -> None:
        sentences, samples, _ = noise.shape
        self.noise = noise
        self.draw = draw
        self.eos = eos
        self.tokens = torch.empty(sentences, samples, 0, dtype=torch.int64, device=noise.device)  # [..., length]
        self.scores = torch.zeros(sentences, samples, device=noise.device)
        self.over = torch.zeros(sentences, samples, dtype=torch.bool, device=noise.device)

    @property
    def done(self) -> Tensor:
        return self.over.all(dim=1)

    def extend(
        self, log_probs: Float[Tensor, "sentence row vocab"]
    ) -> tuple[Int[Tensor, "sentence sample"], Int[Tensor, "sentence sample"]]:
        sentences, samples = self.over.shape
        rows = log_probs.flatten(0, 1)
        # At the first step all samples are drawn from one row, later each from its own.
        uniform = self.noise[:, :, self.tokens.shape[2]].reshape(len(rows), -1)
        token = self.draw(rows, uniform)
        gained = rows.gather(1, token).view(sentences, samples)
        token = token.view(sentences, samples).masked_fill(self.over, self.eos)
        self.scores = self.scores + gained.masked_fill(self.over, 0)
        self.tokens = torch.cat([self.tokens, token[:, :, None]], dim=2)
        self.over = self.over | (token == self.eos)
        parents = torch.arange(samples, device=rows.device).clamp(max=log_probs.shape[1] - 1)
        return parents.expand(sentences, -1), token

    def select(self, sentences: Int[Tensor, "kept"]) -> None:
        self.noise, self.tokens = self.noise[sentences], self.tokens[sentences]
        self.scores, self.over = self.scores[sentences], self.over[sentences]

    def finished(self, sentences: Int[Tensor, "some"]) -> tuple[Tensor, Tensor]:
        """In the order of the samples."""
        return self.tokens[sentences], self.scores[sentences]
