"""Pruning orders: by importance, by loss and at random, chosen on validation sentences; by gates, on training text."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray

from headcount.data.batches import Sentences
from headcount.heads.evaluation_set import evaluation_set
from headcount.heads.hard_concrete import GateTraining, closing_order
from headcount.heads.importance import gate_gradients, normalised_by_layer
from headcount.heads.interface import Heads
from headcount.heads.likelihood import Progress, token_log_probs
from headcount.run.opened import Run

TRAINING = 4000  # training sentences that gates learn on
STEPS = 24  # cuts of an order that is estimated anew after each: of more heads, several go at once
Order = list[int]
"""The numbers of all heads, the first to be cut first."""


@dataclass(frozen=True)
class Choice:
    """What an order is chosen by: the heads, sentences, the training of gates, and a count of the work done in
    sentences."""

    heads: Heads
    source: Sentences
    target: Sentences
    gates: GateTraining
    progress: Progress

    def log_alpha(self) -> NDArray[np.float64]:
        """log alpha of hard concrete gates after each penalty, [penalty, head]."""
        return self.gates.log_alpha(self.heads, self.source, self.target, self.progress)


def gradient(choice: Choice, normalised: bool = True) -> Order:
    """By gradient importance of the whole model, E |dL / d gate| over sentences, the least first; normalised by the l2
    norm of the layer as in Michel et al. 2019, section 4.1."""
    gradients = gate_gradients(choice.heads, choice.source, choice.target, choice.progress)
    importances = abs(gradients).mean(axis=0)
    if normalised:
        importances = normalised_by_layer(importances, choice.heads.labels)
    return np.argsort(importances, kind="stable").tolist()


def gradient_again(choice: Choice) -> Order:
    """By gradient importance, not normalised, estimated anew after each cut."""
    heads = choice.heads

    def harm(order: Order) -> NDArray[np.float64]:
        (gates,) = without(heads, order, [len(heads) - len(order)])
        return abs(gate_gradients(heads, choice.source, choice.target, choice.progress, gates)).mean(axis=0)

    return estimated_anew(harm, len(heads))


def greedy(choice: Choice) -> Order:
    """By the true loss: at each step the head without which the loss rises least."""
    heads = choice.heads

    def harm(order: Order) -> NDArray[np.float64]:
        (gates,) = without(heads, order, [len(heads) - len(order)])
        each = gates * (1 - torch.eye(len(heads)).to(gates))
        left = [number for number in range(len(heads)) if number not in order]
        found = token_log_probs(heads, choice.source, choice.target, each[left], progress=choice.progress)
        losses = np.zeros(len(heads))
        losses[left] = -found.values.sum(axis=1, dtype=np.float64)
        return losses

    return estimated_anew(harm, len(heads))


def estimated_anew(harm: Callable[[Order], NDArray[np.float64]], heads: int) -> Order:
    """The order of the least harm [head] given the heads that are cut already, which it is asked for after each cut."""
    order: Order = []
    while len(order) < heads:
        ranked = np.argsort(harm(order), kind="stable").tolist()
        left = [number for number in ranked if number not in order]
        order += left[: -(-heads // STEPS)]
    return order


def hard_concrete(choice: Choice) -> Order:
    """By hard concrete gates: the heads that the smallest penalty closes first."""
    return closing_order(choice.log_alpha())


ORDERS: dict[str, Callable[[Choice], Order]] = {
    "gradient": gradient,
    "gradient_raw": lambda choice: gradient(choice, normalised=False),
    "gradient_again": gradient_again,
    "greedy": greedy,
    "hard_concrete": hard_concrete,
}


def split_of(order: str) -> str:
    """The split that an order is chosen on. Gates learn on training sentences, as in the paper."""
    return "train" if order == "hard_concrete" else "valid"


def choice_on(run: Run, order: str, rows: Dataset, most: int | None, gates: GateTraining, progress: Progress) -> Choice:
    """What an order of the heads of a run is chosen by: rows of its split, at most `most` of those of "valid"."""
    chosen = evaluation_set(run, rows, TRAINING if split_of(order) == "train" else most)
    return Choice(Heads(run.model), chosen.source, chosen.target, gates, progress)


def random_orders(heads: int, number: int, seed: int) -> list[Order]:
    """Orders drawn at random."""
    random = np.random.default_rng(seed)
    return [random.permutation(heads).tolist() for _ in range(number)]


def without(heads: Heads, order: Order, left: NDArray[np.int64] | list[int]) -> torch.Tensor:
    """Gates [count, head] with as many heads left as `left` [count], the first of `order` being cut."""
    gates = heads.gates().repeat(len(left), 1)
    for row, count in enumerate(left):
        gates[row, order[: len(heads) - int(count)]] = 0
    return gates
