"""Orders of cutting: in which order heads are cut, chosen on validation sentences."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from headcount.data.batches import Sentences
from headcount.heads.hard_concrete import GateTraining, closing_order
from headcount.heads.importance import gate_gradients, normalised_by_layer
from headcount.heads.interface import Heads
from headcount.heads.likelihood import Progress, token_log_probs

Order = list[int]
"""The numbers of all heads, the first to be cut first."""


@dataclass(frozen=True)
class Choice:
    """What an order is chosen by: the heads, validation sentences, the training of gates, and a count of the work done
    in sentences."""

    heads: Heads
    source: Sentences
    target: Sentences
    gates: GateTraining
    progress: Progress


def gradient(choice: Choice, normalised: bool = True) -> Order:
    """By gradient importance of the whole model, E |dL / d gate| over sentences, the least first; normalised by the l2
    norm of the layer as in Michel et al. 2019, section 4.1."""
    gradients = gate_gradients(choice.heads, choice.source, choice.target, choice.progress)
    importances = abs(gradients).mean(axis=0)
    if normalised:
        importances = normalised_by_layer(importances, np.array([str(head) for head in choice.heads.names]))
    return np.argsort(importances, kind="stable").tolist()


def gradient_again(choice: Choice) -> Order:
    """By gradient importance, not normalised, estimated anew after each cut."""
    gates = choice.heads.gates()
    order: Order = []
    while len(order) < len(choice.heads):
        gradients = gate_gradients(choice.heads, choice.source, choice.target, choice.progress, gates)
        importances = abs(gradients).mean(axis=0)
        importances[order] = np.inf
        order.append(int(importances.argmin()))
        gates[order[-1]] = 0
    return order


def greedy(choice: Choice) -> Order:
    """By the true loss: at each step the head without which the loss rises least."""
    heads = choice.heads
    order: Order = []
    gates = heads.gates()
    while len(order) < len(heads):
        left = [number for number in range(len(heads)) if number not in order]
        without = gates.repeat(len(left), 1)
        without[range(len(left)), left] = 0
        found = token_log_probs(heads, choice.source, choice.target, without, progress=choice.progress)
        order.append(left[int(found.values.sum(axis=1, dtype=np.float64).argmax())])
        gates[order[-1]] = 0
    return order


def hard_concrete(choice: Choice) -> Order:
    """By hard concrete gates: the heads that the smallest penalty closes first."""
    found = list(choice.gates.sweep(choice.heads, choice.source, choice.target, choice.progress))
    return closing_order(np.stack([point.log_alpha for point in found]))


ORDERS: dict[str, Callable[[Choice], Order]] = {
    "gradient": gradient,
    "gradient_raw": lambda choice: gradient(choice, normalised=False),
    "gradient_again": gradient_again,
    "greedy": greedy,
    "hard_concrete": hard_concrete,
}


def random_orders(heads: int, number: int, seed: int) -> list[Order]:
    """Orders drawn at random."""
    random = np.random.default_rng(seed)
    return [random.permutation(heads).tolist() for _ in range(number)]


def without(heads: Heads, order: Order, left: NDArray[np.int64] | list[int]) -> torch.Tensor:
    """Gates [count, head] with as many heads left as `left` [count], the first of `order` being cut."""
    gates = heads.gates().repeat(len(left), 1)
    for row, count in enumerate(left):
        gates[row, order[: len(order) - int(count)]] = 0
    return gates
