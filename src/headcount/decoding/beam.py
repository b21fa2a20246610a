"""Beam search."""

from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headcount.decoding.search import Hypotheses, Hypothesis, Limits, SearchMethod

MOST_ALPHA = 10  # with more, the score of a long translation leaves the range of float32


def length_penalty(length: Tensor | int, alpha: float) -> Tensor | float:
    """((5 + length) / 6)^alpha: Wu et al. 2016, "Google's neural machine translation system", equation 14."""
    return ((5 + length) / 6) ** alpha


@dataclass(frozen=True, kw_only=True)
class BeamSearch(SearchMethod):
    """Beam search: the most probable translations among those that a beam of hypotheses finds; greedy with a beam of 1.
    Settings: conf/search/beam.yaml."""

    width_setting = "beam"

    beam: int
    alpha: float

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise ValueError(f"search.beam={self.beam}: must be 1 (greedy) or more")
        super().__post_init__()
        if not 0 <= self.alpha <= MOST_ALPHA:
            raise ValueError(
                f"search.alpha={self.alpha}: must be 0 (no length penalty) or more, up to {MOST_ALPHA}; 1 is usual"
            )

    def begin(self, sources: list[list[int]], limits: Limits, count: int, bos: int, eos: int) -> Hypotheses:
        return Beams(limits, self.beam, bos=bos, eos=eos, alpha=self.alpha, count=count)


def greedy(search: SearchMethod) -> BeamSearch:
    """Greedy search with the common settings of `search`: fast, and good enough to follow a run's progress."""
    common = {field.name: getattr(search, field.name) for field in fields(SearchMethod)}
    return BeamSearch(beam=1, alpha=0, **common)


class Beams:
    """Hypotheses of beam search: the `beam` best unfinished and the `beam` best finished ones of every sentence.

    A sentence is done once `beam` hypotheses have finished, or no unfinished one can beat the `count` best of them.
    """

    def __init__(self, limits: Limits, beam: int, *, bos: int, eos: int, alpha: float, count: int) -> None:
        device = limits.device
        self.limits = limits
        self.beam = beam
        self.eos = eos
        self.alpha = alpha
        self.count = count
        self.length = 0
        self.tokens = torch.full((len(limits), 1, 1), bos, device=device)  # [sentence, beam, length]
        self.scores = torch.zeros(len(limits), 1, device=device)  # [sentence, beam], -inf where there is no hypothesis
        self.finished_tokens = torch.full((len(limits), beam, 1), eos, device=device)
        self.finished_scores = torch.full((len(limits), beam), float("-inf"), device=device)
        self.done = torch.zeros(len(limits), dtype=torch.bool, device=device)
        self.frozen: Tensor | None = None  # [sentence], of which no more hypotheses finish

    @property
    def newest(self) -> Int[Tensor, "sentence beam"]:
        return self.tokens[:, :, -1]

    def extend(self, log_probs: Float[Tensor, "sentence beam vocab"]) -> Int[Tensor, "sentence new_beam"]:
        # Each hypothesis can end at most once, so of twice the beam enough go on.
        return self.take(*best_extensions(self.scores, log_probs, 2 * self.beam))

    def take(
        self,
        best: Float[Tensor, "sentence candidate"],
        parent: Int[Tensor, "sentence candidate"],
        token: Int[Tensor, "sentence candidate"],
    ) -> Int[Tensor, "sentence new_beam"]:
        """Extend by these candidates, in order of preference: the log-probability, parent row and token of each. The
        new beam is the first candidates that do not end."""
        extended = torch.cat([_select(self.tokens, parent), token[:, :, None]], dim=2)
        is_end = token == self.eos
        self.length += 1

        # An end counts only if it is among the `beam` best, or poor early ends would crowd out better, longer ones.
        penalty = length_penalty(self.length, self.alpha)
        counts = is_end if self.frozen is None else is_end & ~self.frozen[:, None]
        ended = (best / penalty).masked_fill(~counts, float("-inf"))[:, : self.beam]
        finished = torch.cat([F.pad(self.finished_tokens, (0, 1), value=self.eos), extended[:, : self.beam]], dim=1)
        self.finished_scores, order = torch.cat([self.finished_scores, ended], dim=1).topk(self.beam, dim=1)
        self.finished_tokens = _select(finished, order)

        order = is_end.byte().argsort(dim=1, stable=True)[:, : self.beam]
        scores = best.masked_fill(is_end, float("-inf")).gather(1, order)
        self.tokens = _select(extended, order)

        # Log-probabilities only fall, so the best score that a hypothesis can reach is its score now at full length.
        longest = (self.limits + 1).clamp(min=self.length + 1) if self.alpha > 0 else self.length + 1
        reach = scores.amax(dim=1) / length_penalty(longest, self.alpha)
        full, beaten = self.finished_scores[:, -1] > float("-inf"), self.finished_scores[:, self.count - 1] >= reach
        self.done = full | beaten | ~(reach > float("-inf"))  # NaN never improves either
        self.scores = scores.masked_fill(self.done[:, None], float("-inf"))  # what finishes later does not count
        return parent.gather(1, order)

    def freeze(self, sentences: Bool[Tensor, "sentence"]) -> None:
        self.frozen = sentences

    def select(self, sentences: Int[Tensor, "kept"]) -> None:
        self.frozen = None
        self.limits, self.done = self.limits[sentences], self.done[sentences]
        self.tokens, self.scores = self.tokens[sentences], self.scores[sentences]
        self.finished_tokens, self.finished_scores = self.finished_tokens[sentences], self.finished_scores[sentences]

    def finished(self, sentences: Int[Tensor, "some"]) -> list[list[Hypothesis]]:
        """Best first, at most `beam` of each sentence."""
        scores, tokens = self.finished_scores[sentences].tolist(), self.finished_tokens[sentences].tolist()
        return [
            [
                Hypothesis(text[1 : text.index(self.eos, 1)], score)  # the first is the beginning-of-sentence
                for score, text in zip(row_scores, texts, strict=True)
                if score != float("-inf")
            ]
            for row_scores, texts in zip(scores, tokens, strict=True)
        ]


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


def _select(tokens: Int[Tensor, "sentence beam length"], order: Int[Tensor, "sentence new_beam"]) -> Tensor:
    return tokens.gather(1, order[:, :, None].expand(-1, -1, tokens.shape[2]))
