"""Toys: models small enough to write down, and every translation that they have."""

import itertools

import torch
from torch import Tensor

from headcount.decoding.beam import length_penalty
from headcount.decoding.search import Hypothesis, SearchMethod, TranslationModel, search_loop

BOS, EOS = 0, 1


class TableModel:
    """Log-probabilities drawn once for each (sentence, tokens so far); its state is the tokens so far of every row."""

    device = torch.device("cpu")
    max_length = None

    def __init__(self, vocab: int, seed: int, sharpness: float = 1.0) -> None:
        self.vocab = vocab
        self.seed = seed
        self.sharpness = sharpness

    def start(self, source: Tensor, source_mask: None) -> list[tuple[int, ...]]:
        return [(sentence,) for sentence in source.tolist()]

    def log_probs(self, history: tuple[int, ...]) -> Tensor:
        generator = torch.Generator().manual_seed(hash((self.seed, history)) % 2**31)
        scores = torch.randn(self.vocab, generator=generator) * self.sharpness
        scores[BOS] = float("-inf")
        return scores.log_softmax(-1)

    def step(self, tokens: Tensor, state: list[tuple[int, ...]]) -> tuple[Tensor, list[tuple[int, ...]]]:
        state = [(*history, token) for history, token in zip(state, tokens.tolist(), strict=True)]
        return torch.stack([self.log_probs(history) for history in state]), state

    def reorder(self, state: list[tuple[int, ...]], rows: Tensor, sentences: Tensor) -> list[tuple[int, ...]]:
        return [state[row] for row in rows.tolist()]


class BrokenModel(TableModel):
    """Its numbers are log-probabilities for some steps; from then on `wrong` is in place of some or all of them.

    Refuses to go on after `last` steps, or a search that ignores its limit would never end.
    """

    def __init__(self, wrong: float, tokens: slice, good: int = 2, last: int = 30) -> None:
        super().__init__(vocab=7, seed=1)
        self.wrong = wrong
        self.tokens = tokens
        self.good = good
        self.last = last

    def log_probs(self, history: tuple[int, ...]) -> Tensor:
        steps = len(history) - 1
        if steps > self.last:
            raise TimeoutError(f"step {steps} of a search that should have ended")
        log_probs = super().log_probs(history)
        if steps > self.good:
            log_probs[self.tokens] = self.wrong
        return log_probs


def found_by(
    search: SearchMethod, model: TranslationModel, sentences: list[int], limits: list[int], count: int = 1
) -> list[list[Hypothesis]]:
    """The hypotheses that a search for `count` translations finds of some sentences of a table."""
    most = torch.tensor(limits)
    hypotheses = search.begin([[sentence] for sentence in sentences], most, count, EOS)
    return search_loop(model, model.start(torch.tensor(sentences), None), most, hypotheses, BOS, EOS)


def one_number(value: float) -> torch.nn.Linear:
    """A model of a single weight."""
    model = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(value)
    return model


def log_prob(model: TableModel, sentence: int, tokens: list[int]) -> float:
    """Log-probability of a translation with its end."""
    history, total = (sentence, BOS), 0.0
    for token in (*tokens, EOS):
        total += model.log_probs(history)[token].item()
        history = (*history, token)
    return total


def every_translation(
    model: TableModel, sentence: int, limit: int, alpha: float = 0.0
) -> list[tuple[float, list[int]]]:
    """All translations of at most `limit` tokens with their scores, best first."""
    found = []
    for length in range(limit + 1):
        for tokens in itertools.product(range(2, model.vocab), repeat=length):
            score = log_prob(model, sentence, list(tokens)) / length_penalty(length + 1, alpha)
            found.append((score, list(tokens)))
    return sorted(found, reverse=True)


def spell(ids: list[list[int]]) -> list[str]:
    """Tokens as text; 2 and 3 are both an a, so that some sequences spell the same."""
    return ["".join("??aabcdefgh"[token] for token in tokens) for tokens in ids]
