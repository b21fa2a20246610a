"""Beam search over anything that can say how probable each next token is.

Notation: a `sentence` is one source in the batch; a `row` is one beam of one sentence, rows of a sentence side by side.
"""

from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

State = TypeVar("State")


@runtime_checkable
class StepModel(Protocol[State]):
    """All that search sees of a model."""

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Log-probabilities [row, vocab] of the token after `tokens` [row]. Search may write into them, and is through
        with them at the next step."""
        ...

    def reorder(self, state: State, rows: Tensor, sentences: Tensor) -> State:
        """The state in which row i is what row `rows[i]` was; `sentences` are the ones that remain, in order."""
        ...


class Hypothesis(NamedTuple):
    """A finished translation: its tokens without beginning- and end-of-sentence, and its score (log-probability with
    the end, divided by the length penalty)."""

    tokens: list[int]
    score: float


def length_penalty(length: Tensor | int, alpha: float) -> Tensor | float:
    """((5 + length) / 6)^alpha: Wu et al. 2016, "Google's neural machine translation system", equation 14."""
    return ((5 + length) / 6) ** alpha


def beam_search(
    model: StepModel[State],
    state: State,
    limits: Int[Tensor, "sentence"],
    *,
    beam: int,
    bos: int,
    eos: int,
    alpha: float = 1.0,
) -> list[list[Hypothesis]]:
    """The finished hypotheses of every sentence, best first, at most `beam` of them; beam 1 is greedy search.

    state: the model's state before the first token, one row a sentence. limits: most tokens a translation may have
    before its end-of-sentence; a hypothesis that long must end. alpha: exponent of the length penalty.

    A sentence is done once `beam` hypotheses have finished or none that still grows can beat the best finished one. The
    done leave the batch.
    """
    device = limits.device
    results: list[list[Hypothesis]] = [[] for _ in limits]
    index = torch.arange(len(limits), device=device)  # which sentence each line of the tensors below belongs to
    tokens = torch.full((len(limits), 1, 1), bos, device=device)  # [sentence, beam, length]
    scores = torch.zeros(len(limits), 1, device=device)  # [sentence, beam]
    finished_tokens = torch.full((len(limits), beam, 1), eos, device=device)
    finished_scores = torch.full((len(limits), beam), float("-inf"), device=device)
    first_limit = int(limits.min()) if len(limits) else 0
    length = 0
    while len(index):
        log_probs, state = model.step(tokens[:, :, -1].flatten(), state)
        log_probs = log_probs.unflatten(0, scores.shape)
        if length >= first_limit:
            ends = log_probs[:, :, eos].clone()
            log_probs.masked_fill_((limits <= length)[:, None, None], float("-inf"))
            log_probs[:, :, eos] = ends
        # Each beam can end at most once, so twice the beam leaves enough that go on.
        best, parent, token = best_extensions(scores, log_probs, 2 * beam)
        extended = torch.cat([_select(tokens, parent), token[:, :, None]], dim=2)
        is_end = token == eos
        length += 1

        # An end counts only if it is among the `beam` best, or poor early ends would crowd out better, longer ones.
        ended = (best / length_penalty(length, alpha)).masked_fill(~is_end, float("-inf"))[:, :beam]
        finished_tokens = torch.cat([F.pad(finished_tokens, (0, 1), value=eos), extended[:, :beam]], dim=1)
        finished_scores, order = torch.cat([finished_scores, ended], dim=1).topk(beam, dim=1)
        finished_tokens = _select(finished_tokens, order)

        # Those that go on, best first: the ends are pushed behind them.
        scores, order = best.masked_fill(is_end, float("-inf")).topk(min(beam, best.shape[1]), dim=1)
        tokens = _select(extended, order)
        rows = parent.gather(1, order) + torch.arange(len(index), device=device)[:, None] * log_probs.shape[1]

        # log-probabilities only fall, so the best that a growing hypothesis can reach is its score now at full length.
        reach = scores[:, 0] / length_penalty((limits + 1).clamp(min=length + 1) if alpha > 0 else length + 1, alpha)
        done = (finished_scores[:, -1] > float("-inf")) | (finished_scores[:, 0] >= reach) | (reach == float("-inf"))
        scores = scores.masked_fill(done[:, None], float("-inf"))  # nothing that is found later counts
        # Leaving moves the caches of all that remain, so a large batch waits until some can leave together.
        keep = torch.arange(len(index), device=device)
        if int(done.sum()) > len(index) // 16:
            _collect(results, index[done], finished_scores[done], finished_tokens[done], eos)
            keep = (~done).nonzero()[:, 0]
            if not len(keep):
                break
            index, limits, tokens, scores, rows = index[keep], limits[keep], tokens[keep], scores[keep], rows[keep]
            finished_scores, finished_tokens = finished_scores[keep], finished_tokens[keep]
            first_limit = int(limits.min())
        state = model.reorder(state, rows.flatten(), keep)
    return results


def best_extensions(
    scores: Float[Tensor, "sentence beam"], log_probs: Float[Tensor, "sentence beam vocab"], count: int, block: int = 64
) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` best of scores + log_probs in each sentence, best first: their values, beams and tokens, each
    [sentence, count] (less where there are not so many). What has the value -inf may stand there twice.

    The best n numbers are in the n blocks with the greatest maxima: so the vocabulary is read once, and a few blocks of
    it are sorted.
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


def _collect(
    results: list[list[Hypothesis]],
    index: Int[Tensor, "sentence"],
    scores: Float[Tensor, "sentence beam"],
    tokens: Int[Tensor, "sentence beam length"],
    eos: int,
) -> None:
    for sentence, row_scores, texts in zip(index.tolist(), scores.tolist(), tokens.tolist(), strict=True):
        results[sentence] = [
            Hypothesis(text[1 : text.index(eos, 1)], score)  # the first is the beginning-of-sentence
            for score, text in zip(row_scores, texts, strict=True)
            if score > float("-inf")
        ]
