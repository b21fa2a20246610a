"""Pruning orders: by importance, by loss and at random, chosen on validation sentences; by gates, on training text."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray

from headcount.data.batches import Sentences
from headcount.heads.ablation import gates_off
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

    def importance(self, cut: Order) -> NDArray[np.float64]:
        """E |dL / d gate| over sentences [head], these heads being cut."""
        (gates,) = gates_off(self.heads, [cut])
        return abs(gate_gradients(self.heads, self.source, self.target, self.progress, gates)).mean(axis=0)

    def harm(self, cut: Order) -> NDArray[np.float64]:
        """The loss in nats without each head [head], these heads being cut."""
        left = [number for number in range(len(self.heads)) if number not in cut]
        gates = gates_off(self.heads, [[*cut, number] for number in left])
        found = token_log_probs(self.heads, self.source, self.target, gates, progress=self.progress)
        losses = np.zeros(len(self.heads))
        losses[left] = -found.values.sum(axis=1, dtype=np.float64)
        return losses

    def log_alpha(self) -> NDArray[np.float64]:
        """log alpha of hard concrete gates after each penalty, [penalty, head]."""
        return self.gates.log_alpha(self.heads, self.source, self.target, self.progress)


def gradient(choice: Choice) -> Order:
    """By gradient importance of the whole model, the least first, normalised by the l2 norm of the layer as in Michel
    et al. 2019, section 4.1."""
    importances = normalised_by_layer(choice.importance([]), choice.heads.labels)
    return np.argsort(importances, kind="stable").tolist()


def estimated_anew(harm: Callable[[Order], NDArray[np.float64]], heads: int) -> Order:
    """The order of the least harm [head] given the heads that are cut already, which it is asked for after each cut."""
    order: Order = []
    while len(order) < heads:
        ranked = np.argsort(harm(order), kind="stable").tolist()
        left = [number for number in ranked if number not in order]
        order += left[: -(-heads // STEPS)]
    return order


ORDERS: dict[str, Callable[[Choice], Order]] = {
    "gradient": gradient,
    "gradient_raw": lambda choice: np.argsort(choice.importance([]), kind="stable").tolist(),
    "gradient_again": lambda choice: estimated_anew(choice.importance, len(choice.heads)),
    "greedy": lambda choice: estimated_anew(choice.harm, len(choice.heads)),
    "hard_concrete": lambda choice: closing_order(choice.log_alpha()),
}


def split_of(order: str) -> str:
    """The split that an order is chosen on. Gates learn on training sentences, as in the paper."""
    return "train" if order == "hard_concrete" else "valid"


def choice_on(run: Run, order: str, rows: Dataset, most: int | None, gates: GateTraining, progress: Progress) -> Choice:
    """What an order of the heads of a run is chosen by: rows of its split, at most `most` of those of "valid"."""
    chosen = evaluation_set(run, rows, TRAINING if split_of(order) == "train" else most)
    return Choice(Heads(run.model), chosen.source, chosen.target, gates, progress)
