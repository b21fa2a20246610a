"""Beam search over anything that can say how probable each next token is.

Notation: a `sentence` is one source in the batch; a `row` is one beam of one sentence, rows of a sentence side by side.
"""

from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

State = TypeVar("State")


@runtime_checkable
class StepModel(Protocol[State]):
    """All that search sees of a model."""

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Log-probabilities [row, vocab] of the token after `tokens` [row]."""
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

    A sentence is done, and leaves the batch, once `beam` hypotheses have finished or none that still grows can beat the
    best finished one.
    """
    device = limits.device
    sentences = len(limits)
    results: list[list[Hypothesis]] = [[] for _ in range(sentences)]
    index = torch.arange(sentences, device=device)  # which sentence each line of the tensors below belongs to
    tokens = torch.full((sentences, 1, 1), bos, device=device)  # [sentence, beam, length]
    scores = torch.zeros(sentences, 1, device=device)  # [sentence, beam]
    finished_scores = torch.full((sentences, beam), float("-inf"), device=device)
    finished_tokens = torch.zeros(sentences, beam, 0, dtype=torch.long, device=device)
    finished_lengths = torch.zeros(sentences, beam, dtype=torch.long, device=device)
    length = 0
    while len(index):
        log_probs, state = model.step(tokens[:, :, -1].flatten(), state)
        width, vocab = tokens.shape[1], log_probs.shape[-1]
        log_probs = log_probs.view(-1, width, vocab)
        if bool((limits <= length).any()):
            ends = log_probs[:, :, eos].clone()
            log_probs = log_probs.masked_fill((limits <= length)[:, None, None], float("-inf"))
            log_probs[:, :, eos] = ends
        candidates = scores[:, :, None] + log_probs
        # Each beam can end at most once, so twice the beam leaves enough that go on.
        best, flat = candidates.flatten(1).topk(min(2 * beam, width * vocab), dim=1)
        parent, token = flat // vocab, flat % vocab
        is_end = token == eos
        length += 1

        # An end counts only if it is among the `beam` best, or poor early ends would crowd out better, longer ones.
        ending = is_end & (torch.arange(best.shape[1], device=device) < beam)
        if bool(ending.any()):
            ended = (best / length_penalty(length, alpha)).masked_fill(~ending, float("-inf"))
            grown = tokens.gather(1, parent[:, :, None].expand(-1, -1, tokens.shape[2]))[:, :, 1:]
            pad = grown.shape[2] - finished_tokens.shape[2]
            finished_tokens = torch.cat([torch.nn.functional.pad(finished_tokens, (0, pad)), grown], dim=1)
            finished_lengths = torch.cat([finished_lengths, torch.full_like(parent, length - 1)], dim=1)
            finished_scores, order = torch.cat([finished_scores, ended], dim=1).topk(beam, dim=1)
            finished_lengths = finished_lengths.gather(1, order)
            finished_tokens = finished_tokens.gather(1, order[:, :, None].expand(-1, -1, finished_tokens.shape[2]))

        # Those that go on, best first: the ends are pushed behind them.
        scores, order = best.masked_fill(is_end, float("-inf")).topk(min(beam, best.shape[1]), dim=1)
        parent, token = parent.gather(1, order), token.gather(1, order)
        tokens = torch.cat(
            [tokens.gather(1, parent[:, :, None].expand(-1, -1, tokens.shape[2])), token[:, :, None]], dim=2
        )

        # log-probabilities only fall, so the best that a growing hypothesis can reach is its score now at full length.
        reach = scores[:, 0] / length_penalty((limits + 1).clamp(min=length + 1) if alpha > 0 else length + 1, alpha)
        done = (finished_scores[:, -1] > float("-inf")) | (finished_scores[:, 0] >= reach) | (reach == float("-inf"))
        rows = parent + torch.arange(len(index), device=device)[:, None] * width
        if bool(done.any()):
            _collect(results, index[done], finished_scores[done], finished_tokens[done], finished_lengths[done])
            keep = (~done).nonzero()[:, 0]
            index, limits, tokens, scores, rows = index[keep], limits[keep], tokens[keep], scores[keep], rows[keep]
            finished_scores, finished_tokens = finished_scores[keep], finished_tokens[keep]
            finished_lengths = finished_lengths[keep]
        else:
            keep = torch.arange(len(index), device=device)
        if len(index):
            state = model.reorder(state, rows.flatten(), keep)
    return results


def _collect(
    results: list[list[Hypothesis]],
    index: Int[Tensor, "sentence"],
    scores: Float[Tensor, "sentence beam"],
    tokens: Int[Tensor, "sentence beam length"],
    lengths: Int[Tensor, "sentence beam"],
) -> None:
    for sentence, row in enumerate(index.tolist()):
        results[row] = [
            Hypothesis(text[:length], score)
            for score, text, length in zip(
                scores[sentence].tolist(), tokens[sentence].tolist(), lengths[sentence].tolist(), strict=True
            )
            if score > float("-inf")
        ]
