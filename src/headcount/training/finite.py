"""Divergence: training stops at the first loss or gradient that is not a finite number, before anything is saved."""

import math
from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from headcount.errors import InputError

SHOWN = 3  # sentence pairs of the batch that are shown


class Step(NamedTuple):
    """One optimizer step of one process: its number from 1, learning rate, loss, gradient norm, and the row numbers of
    its sentence pairs in the prepared training data."""

    number: int
    rate: float
    loss: Tensor
    norm: Tensor
    rows: Tensor


class FiniteSteps:
    """Optimizer steps whose figures are not checked yet: to read a figure from a GPU makes training wait for it.

    source: the source sentence of a row.
    """

    def __init__(self, source: Callable[[int], str]) -> None:
        self.source = source
        self.steps: list[Step] = []

    def look(self) -> None:
        """Raises InputError for the first of the steps whose loss or gradient norm is not finite."""
        steps, self.steps = self.steps, []
        for step in steps:
            if not (math.isfinite(step.norm) and math.isfinite(step.loss)):
                raise InputError(self._message(step))

    def _message(self, step: Step) -> str:
        rows = step.rows.tolist()
        shown = "; ".join(f"{row} {self.source(row)[:40]!r}" for row in rows[:SHOWN])
        return (
            f"step {step.number}: loss {float(step.loss):.3g}, gradient norm {float(step.norm):.3g} at learning rate "
            f"{step.rate:.2e}, so training has diverged and nothing more is saved; its batch has {len(rows)} pairs, "
            f"rows {shown}{' ...' if len(rows) > SHOWN else ''} of the training data. Try a smaller optimizer.lr, more "
            "schedule.warmup_steps, trainer.gradient_clip_val=1 or trainer.precision=32-true"
        )
