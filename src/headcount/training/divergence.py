"""Divergence: optimizer steps without finite gradients are skipped; too many of them in a row end training."""

import logging
import math
from typing import Annotated

from annotated_types import Ge
from torch import Tensor

from headcount.errors import InputError

logger = logging.getLogger(__name__)

TRY = "Try a smaller optimizer.lr or trainer.gradient_clip_val, more schedule.warmup_steps or trainer.precision=32-true"


class SkippedSteps:
    """Skips the optimizer steps whose gradient norm is not finite: weights, optimizer and averages stay as they were.

    The step still counts: its batch is used up, and the schedule goes on. Gradients are the same on all processes, so
    all skip the same steps.

    stop_after: skipped steps in a row that end training. total and in_a_row: how many there were, and up to now.
    """

    def __init__(self, stop_after: Annotated[int, Ge(1)]) -> None:
        self.stop_after = stop_after
        self.total = 0
        self.in_a_row = 0

    def state_dict(self) -> dict[str, int]:
        return {"total": self.total, "in_a_row": self.in_a_row}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.total, self.in_a_row = state["total"], state["in_a_row"]

    def skips(self, step: int, loss: Tensor | float, norm: float, rate: float) -> bool:
        """Whether optimizer step `step`, counted from 1, is to be skipped, which is counted and logged.

        loss: in nats a token; norm: of the gradients; rate: the learning rate. Raises InputError for the last of
        `stop_after` skipped steps in a row.
        """
        if math.isfinite(norm):
            self.in_a_row = 0
            return False
        self.total += 1
        self.in_a_row += 1
        figures = f"step {step}: loss {loss:.3g}, gradient norm {norm:.3g} at learning rate {rate:.2e}"
        if self.in_a_row == self.stop_after:
            raise InputError(
                f"{figures}: no finite gradients in {self.in_a_row} steps in a row (divergence.stop_after="
                f"{self.stop_after}), so training has diverged and nothing more is saved. {TRY}"
            )
        logger.info("%s: skipped", figures)
        return True

    def diverged(self, step: int) -> InputError:
        """The error where the model gives probabilities that are not finite after optimizer step `step`."""
        after = f"; the {self.in_a_row} after it had no finite gradients and were skipped" if self.in_a_row else ""
        return InputError(
            f"step {step - self.in_a_row}: after it the model's probabilities are not finite numbers, so training has "
            f"diverged in this step{after}. {TRY}"
        )
