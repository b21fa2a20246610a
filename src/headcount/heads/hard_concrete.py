"""Hard concrete gates: heads are closed by a penalty on the expected number of open ones (an L0 norm).

Louizos et al. 2018, "Learning sparse neural networks through L0 regularization", equations 10 to 12; for heads: Voita
et al. 2019, "Analyzing multi-head self-attention", section 6, with the settings of their code. The training starts with
all gates open. Unlike there, only the gates are trained; all three kinds of heads have them; noise is drawn for each
sentence.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from headcount.data.batches import Sentences, collate
from headcount.data.batching import in_order_of_length
from headcount.errors import InputError
from headcount.heads.interface import Heads
from headcount.heads.likelihood import Progress, batch_log_probs

TEMPERATURE = 0.33
LOW, HIGH = -0.1, 1.1  # the stretch
EPSILON = 1e-6
START = 2.0  # of log alpha: P(open) = 0.94
BATCH_TOKENS = 512  # padded tokens of a step
GATE_RATE = 0.1  # Adam's learning rate


def sampled(log_alpha: Tensor, rows: int, generator: torch.Generator) -> Tensor:
    """Gates [row, head] in [0, 1], drawn from log_alpha [head]; a gradient flows to it. Louizos et al., equation 10
    and 11."""
    noise = torch.rand(rows, len(log_alpha), generator=generator).clamp(EPSILON, 1 - EPSILON).to(log_alpha)
    concrete = torch.sigmoid((noise.log() - (1 - noise).log() + log_alpha) / TEMPERATURE)
    return (concrete * (HIGH - LOW) + LOW).clamp(0, 1)


def probability_open(log_alpha: Tensor) -> Tensor:
    """P(gate > 0), equation 12."""
    return torch.sigmoid(log_alpha - TEMPERATURE * math.log(-LOW / HIGH)).clamp(EPSILON, 1 - EPSILON)


def final(log_alpha: NDArray[np.float64]) -> NDArray[np.float64]:
    """Gates without noise, as after training; 0 is closed. Louizos et al., equation 13."""
    return np.clip(expit(log_alpha) * (HIGH - LOW) + LOW, 0, 1)


@dataclass(frozen=True)
class GateTraining:
    """Settings of the training of gates; the weights stay as they are.

    penalties: lambda, on the expected number of open heads, beside the loss in nats a token, in rising order; each goes
    on from the gates of the one before. steps: of each penalty. Raises InputError.
    """

    penalties: tuple[float, ...]
    steps: int
    seed: int

    def __post_init__(self) -> None:
        numbers = [each for each in self.penalties if isinstance(each, int | float) and each > 0]
        if not numbers or sorted(numbers) != list(self.penalties):
            raise InputError(f"gate_penalties={list(self.penalties)}: must be numbers above 0 in rising order")

    @torch.enable_grad()
    def log_alpha(
        self, heads: Heads, source: Sentences, target: Sentences, progress: Progress | None = None
    ) -> NDArray[np.float64]:
        """log alpha [penalty, head] after each penalty, trained on these sentences; `progress` is called with those
        done."""
        log_alpha = torch.full((len(heads),), START, device=heads.model.device, requires_grad=True)
        optimizer = torch.optim.Adam([log_alpha], lr=GATE_RATE, betas=(0.9, 0.998))
        generator = torch.Generator().manual_seed(self.seed)
        groups = in_order_of_length(source.lengths, target.lengths, BATCH_TOKENS)
        found = []
        for penalty in self.penalties:
            for _ in range(self.steps):
                rows = groups[int(torch.randint(len(groups), (), generator=generator))]
                batch = collate(source, target, rows, 0).to(heads.model.device)
                with heads.gated(sampled(log_alpha, len(rows), generator)):
                    nats = -batch_log_probs(heads, batch).sum()
                loss = nats / int(target.lengths[rows].sum()) + penalty * probability_open(log_alpha).sum()
                optimizer.zero_grad()
                loss.backward(inputs=[log_alpha])
                optimizer.step()
                if progress is not None:
                    progress(len(rows))
            found.append(log_alpha.detach().cpu().double().numpy().copy())
        return np.stack(found)


def closing_order(log_alpha: NDArray[np.float64]) -> list[int]:
    """The heads from log_alpha [penalty, head], penalties rising: those that the smallest penalty closes first, of
    these the least open one; at the end those that stay open."""
    closed = final(log_alpha) == 0
    first = np.where(closed.any(axis=0), closed.argmax(axis=0), len(log_alpha))
    at = log_alpha[np.minimum(first, len(log_alpha) - 1), np.arange(log_alpha.shape[1])]
    order: list[int] = np.lexsort((at, first)).tolist()
    return order
