"""Beam search."""

from dataclasses import dataclass, fields
from typing import Annotated

import torch
import torch.nn.functional as F
from annotated_types import Ge, Le
from jaxtyping import Float, Int
from torch import Tensor

from headcount.decoding.search import Hypotheses, Limits, Rows, SearchMethod

MOST_ALPHA = 10  # with more, the score of a long translation leaves the range of float32


def length_penalty(length: Tensor | int, alpha: float) -> Tensor | float:
    """((5 + length) / 6)^alpha: Wu et al. 2016, "Google's neural machine translation system", equation 14."""
    return ((5 + length) / 6) ** alpha


@dataclass(frozen=True, kw_only=True)
class BeamSearch(SearchMethod):
    """Beam search: the most probable translations among those that a beam of hypotheses finds; greedy with a beam of 1.
    Settings: conf/search/beam.yaml."""

    width_setting = "beam"

    beam: Rows
    alpha: Annotated[float, Ge(0), Le(MOST_ALPHA)]

    def begin(self, sources: list[list[int]], limits: Limits, count: int, eos: int) -> Hypotheses:
        return Beams(limits, self.beam, eos=eos, alpha=self.alpha, count=count)


def greedy(search: SearchMethod) -> BeamSearch:
    """Greedy search with the common settings of `search`: fast, and good enough to follow a run's progress."""
    common = {field.name: getattr(search, field.name) for field in fields(SearchMethod)}
    return BeamSearch(beam=1, alpha=0, **common)


class Beams:
    """Hypotheses of beam search: the `beam` best unfinished and the `beam` best finished ones of every sentence.

    A sentence is done once `beam` hypotheses have finished, or no unfinished one can beat the `count` best of them.
    """

    def __init__(self, limits: Limits, beam: int, *, eos: int, alpha: float, count: int) -> None:
        sentences, device = len(limits), limits.device
        self.limits = limits
        self.beam = beam
        self.eos = eos
        self.alpha = alpha
        self.count = count
        self.length = 0
        self.tokens = torch.empty(sentences, 1, 0, dtype=torch.int64, device=device)  # [sentence, beam, length]
        self.scores = torch.zeros(sentences, 1, device=device)  # [sentence, beam], -inf where there is no hypothesis
        self.finished_tokens = torch.empty(sentences, beam, 0, dtype=torch.int64, device=device)
        self.finished_scores = torch.full((sentences, beam), float("-inf"), device=device)
        self.done = torch.zeros(sentences, dtype=torch.bool, device=device)

    def extend(
        self, log_probs: Float[Tensor, "sentence beam vocab"], cost: Float[Tensor, "sentence vocab"] | None = None
    ) -> tuple[Int[Tensor, "sentence new_beam"], Int[Tensor, "sentence new_beam"]]:
        """The new beam is the first candidates that do not end, in order of their log-probability; returns the parent
        row and the token of each. cost: of each token, counts in this order, but not in the scores.

        With a beam of 2, and "." for the end: of the candidates "a b .", "a c", "d .", "a b e", the first finishes, and
        the new beam is "a c" and "a b e". "d ." is not among the first two, so its end does not count.
        """
        # Each hypothesis can end at most once, so of twice the beam enough go on.
        chosen_by = log_probs if cost is None else log_probs - cost[:, None]
        best, parent, token = best_extensions(self.scores, chosen_by, 2 * self.beam)
        if cost is not None:
            gained = log_probs.flatten(1).gather(1, parent * log_probs.shape[2] + token)
            best = self.scores.gather(1, parent) + gained
        extended = torch.cat([self.tokens.take_along_dim(parent[:, :, None], 1), token[:, :, None]], dim=2)
        is_end = token == self.eos
        self.length += 1

        # An end counts only if it is among the `beam` best, or poor early ends would crowd out better, longer ones.
        penalty = length_penalty(self.length, self.alpha)
        ended = (best / penalty).masked_fill(~is_end, float("-inf"))[:, : self.beam]
        finished = torch.cat([F.pad(self.finished_tokens, (0, 1), value=self.eos), extended[:, : self.beam]], dim=1)
        self.finished_scores, order = torch.cat([self.finished_scores, ended], dim=1).topk(self.beam, dim=1)
        self.finished_tokens = finished.take_along_dim(order[:, :, None], 1)

        order = is_end.byte().argsort(dim=1, stable=True)[:, : self.beam]
        scores = best.masked_fill(is_end, float("-inf")).gather(1, order)
        self.tokens = extended.take_along_dim(order[:, :, None], 1)

        # Log-probabilities only fall, so the best score that a hypothesis can reach is its score now at full length.
        longest = (self.limits + 1).clamp(min=self.length + 1) if self.alpha > 0 else self.length + 1
        reach = scores.amax(dim=1) / length_penalty(longest, self.alpha)
        full, beaten = self.finished_scores[:, -1] > float("-inf"), self.finished_scores[:, self.count - 1] >= reach
        self.done = full | beaten | ~(reach > float("-inf"))  # NaN never improves either
        self.scores = scores.masked_fill(self.done[:, None], float("-inf"))  # what finishes later does not count
        return parent.gather(1, order), token.gather(1, order)

    def select(self, sentences: Int[Tensor, "kept"]) -> None:
        for name in ("limits", "done", "tokens", "scores", "finished_tokens", "finished_scores"):
            setattr(self, name, getattr(self, name)[sentences])

    def finished(self, sentences: Int[Tensor, "some"]) -> tuple[Tensor, Tensor]:
        """Best first, at most `beam` of each sentence."""
        return self.finished_tokens[sentences], self.finished_scores[sentences]


def best_extensions(
    scores: Float[Tensor, "sentence beam"], log_probs: Float[Tensor, "sentence beam vocab"], count: int, block: int = 64
) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` best of scores + log_probs in each sentence, best first: their values, beams and tokens, each
    [sentence, count], fewer if there are fewer. Candidates of value -inf may occur twice.

    The best n numbers are in the n blocks with the greatest maxima, so the vocabulary is read once and only a few
    blocks are sorted.
    """
    beams, vocab = log_probs.shape[1:]
    whole = vocab - vocab % block
    maxima = log_probs[:, :, :whole].unflatten(2, (-1, block)).amax(dim=3)
    if whole < vocab:
        maxima = torch.cat([maxima, log_probs[:, :, whole:].amax(dim=2, keepdim=True)], dim=2)
    blocks = maxima.shape[2]
    chosen = (scores[:, :, None] + maxima).flatten(1).topk(min(count, beams * blocks), dim=1, sorted=False).indices
    beam = (chosen // blocks)[:, :, None]
    token = (chosen % blocks * block)[:, :, None] + torch.arange(block, device=chosen.device)
    beyond, token = token >= vocab, token.clamp(max=vocab - 1)
    at = beam * vocab + token
    candidates = log_probs.flatten(1).gather(1, at.flatten(1)).view(at.shape) + scores[:, :, None].gather(1, beam)
    candidates.masked_fill_(beyond, float("-inf"))
    best, order = candidates.flatten(1).topk(min(count, beams * vocab), dim=1)
    return best, beam[:, :, 0].gather(1, order // block), token.flatten(1).gather(1, order)
