"""Search against brute force, on models small enough to write down."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from headcount.decoding.search import beam_search, best_extensions, length_penalty

BOS, EOS = 0, 1


class TableModel:
    """Log-probabilities drawn once for each (sentence, tokens so far); its state is the tokens so far of every row."""

    def __init__(self, vocab: int, seed: int, sharpness: float = 1.0) -> None:
        self.vocab = vocab
        self.seed = seed
        self.sharpness = sharpness

    def start(self, sentences: list[int]) -> list[tuple[int, ...]]:
        return [(sentence,) for sentence in sentences]

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


def every_translation(model: TableModel, sentence: int, limit: int, alpha: float) -> list[tuple[float, list[int]]]:
    """All translations of at most `limit` tokens with their scores, best first."""
    found = []
    for length in range(limit + 1):
        for tokens in itertools.product(range(2, model.vocab), repeat=length):
            history, total = (sentence, BOS), 0.0
            for token in (*tokens, EOS):
                total += model.log_probs(history)[token].item()
                history = (*history, token)
            found.append((total / length_penalty(length + 1, alpha), list(tokens)))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_wide_beam_is_exhaustive(seed, alpha):
    model = TableModel(vocab=5, seed=seed)
    limits = [4, 0, 3, 1]
    found = beam_search(
        model, model.start([0, 1, 2, 3]), torch.tensor(limits), beam=5**4, bos=BOS, eos=EOS, alpha=alpha
    )
    for sentence, limit in enumerate(limits):
        score, tokens = every_translation(model, sentence, limit, alpha)[0]
        assert found[sentence][0].tokens == tokens
        assert found[sentence][0].score == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize("seed", range(10))
def test_beam_1_is_greedy(seed):
    model = TableModel(vocab=6, seed=seed)
    found = beam_search(model, model.start([7]), torch.tensor([12]), beam=1, bos=BOS, eos=EOS)
    history, expected = (7, BOS), []
    while len(expected) < 12:
        token = int(model.log_probs(history).argmax())
        if token == EOS:
            break
        expected.append(token)
        history = (*history, token)
    assert [hypothesis.tokens for hypothesis in found[0]] == [expected]


@pytest.mark.parametrize("beam", [2, 3, 5])
def test_company_changes_nothing_and_hypotheses_are_sorted_and_true(beam):
    model = TableModel(vocab=7, seed=3, sharpness=2.0)
    limits = torch.tensor([9, 2, 5, 9, 1])
    together = beam_search(model, model.start([0, 1, 2, 3, 4]), limits, beam=beam, bos=BOS, eos=EOS)
    for sentence in range(5):
        alone = beam_search(
            model, model.start([sentence]), limits[sentence : sentence + 1], beam=beam, bos=BOS, eos=EOS
        )
        assert together[sentence] == alone[0]
        scores = [hypothesis.score for hypothesis in alone[0]]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(hypothesis.tokens) for hypothesis in alone[0]}) == len(scores) <= beam
        for tokens, score in alone[0]:
            assert len(tokens) <= limits[sentence]
            history, total = (sentence, BOS), 0.0
            for token in (*tokens, EOS):
                total += model.log_probs(history)[token].item()
                history = (*history, token)
            assert score == pytest.approx(total / length_penalty(len(tokens) + 1, 1.0), abs=1e-5)


def test_a_wider_beam_finds_what_greedy_misses():
    class Trap(TableModel):
        def log_probs(self, history):
            table = {
                (0, BOS): {2: 0.6, 3: 0.4},
                (0, BOS, 2): {2: 0.3, 3: 0.3, EOS: 0.4},
                (0, BOS, 3): {EOS: 1.0},
            }.get(history, {EOS: 1.0})
            return torch.tensor([math.log(table[token]) if token in table else -math.inf for token in range(4)])

    model = Trap(vocab=4, seed=0)
    tokens = [
        beam_search(model, model.start([0]), torch.tensor([5]), beam=beam, bos=BOS, eos=EOS, alpha=0)[0][0].tokens
        for beam in (1, 2)
    ]
    assert tokens == [[2], [3]]


@pytest.mark.parametrize("vocab", [1, 5, 63, 64, 65, 128, 1000])
@pytest.mark.parametrize("count", [1, 2, 6, 10])
def test_the_best_extensions_are_those_of_a_full_sort(vocab, count):
    torch.manual_seed(vocab)
    # Rounded, so that there are ties; and many that are impossible.
    log_probs = (torch.randn(4, 3, vocab) * 3).round().masked_fill(torch.rand(4, 3, vocab) < 0.3, -math.inf)
    scores = torch.tensor([[0.0, -1, -1], [0, -2, -math.inf], [-1, -1, -1], [-math.inf] * 3])
    values, beams, tokens = best_extensions(scores, log_probs, count)
    total = scores[:, :, None] + log_probs
    assert torch.equal(values, total.flatten(1).sort(dim=1, descending=True).values[:, :count])
    possible = values > -math.inf
    assert torch.equal(total[torch.arange(4)[:, None], beams, tokens][possible], values[possible])
    for row, real in zip(beams * vocab + tokens, possible, strict=True):
        assert len(row[real].unique()) == real.sum()
    assert tokens.max() < vocab


def test_a_large_batch_that_finishes_bit_by_bit_changes_nothing():
    model = TableModel(vocab=7, seed=5, sharpness=2.0)
    limits = [1 + 7 * sentence % 13 for sentence in range(48)]
    together = beam_search(model, model.start(list(range(48))), torch.tensor(limits), beam=3, bos=BOS, eos=EOS)
    for sentence, limit in enumerate(limits):
        alone = beam_search(model, model.start([sentence]), torch.tensor([limit]), beam=3, bos=BOS, eos=EOS)
        assert together[sentence] == alone[0]


def test_no_sentences_have_no_translations():
    model = TableModel(vocab=7, seed=5)
    assert beam_search(model, [], torch.tensor([], dtype=torch.long), beam=3, bos=BOS, eos=EOS) == []


def test_length_penalty_is_equation_14():
    assert length_penalty(1, 0.6) == 1
    assert length_penalty(7, 1.0) == 2
    assert length_penalty(19, 0.5) == 2
