"""Divergence: optimizer steps without finite gradients are skipped; too many of them in a row end training."""

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from headcount.errors import InputError, printable

logger = logging.getLogger(__name__)

TRY = "Try a smaller optimizer.lr or trainer.gradient_clip_val, more schedule.warmup_steps or trainer.precision=32-true"
SHOWN = 3  # sentence pairs of a batch that are named


class Step(NamedTuple):
    """One optimizer step: its number from 1, learning rate, gradient norm, and of each of its micro-batches the loss
    and the row numbers of its sentence pairs in the prepared training data."""

    number: int
    rate: float
    norm: Tensor
    parts: Sequence[tuple[Tensor, Tensor]]


class Arriving:
    """A number on its way from a device: `read` waits for it, and for nothing that the device has got to do since."""

    def __init__(self, number: Tensor) -> None:
        self.copy, self.event = number.detach(), None
        if number.is_cuda:
            self.copy = number.detach().to("cpu", non_blocking=True)
            self.event = torch.cuda.Event()
            self.event.record()

    def read(self) -> float:
        if self.event is not None:
            self.event.synchronize()
        return float(self.copy)


def skip_if_not_finite(optimizer: Any, norm: Tensor) -> None:
    """Make the next step of an optimizer that reads `found_inf`, as torch's fused ones do, change nothing where this
    norm of the gradients is not finite. The processor does not wait for the norm."""
    optimizer.grad_scale, optimizer.found_inf = None, (~norm.isfinite()).to(torch.float32)


class SkippedSteps:
    """Skips the optimizer steps whose gradient norm is not finite.

    The weights and the optimizer's state stay as they were, and so does a moving average of the weights, except on a
    GPU: see `ExponentialAverage`. The step still counts: its batch is used up, and the schedule goes on. Gradients are
    the same on all processes, so all skip the same steps.

    To ask a GPU for the norm would make the processor wait for it, and the GPU for its next work. There, an optimizer
    that can skips the step on the device (`found_inf` of torch's own), and what it did is counted one step later: see
    `expect` and `settle`.

    stop_after: skipped steps in a row that end training. total and in_a_row: how many there were, and up to now.

    Raises ValueError for `stop_after` below 1.
    """

    def __init__(self, stop_after: int) -> None:
        if isinstance(stop_after, bool) or not isinstance(stop_after, int) or stop_after < 1:
            raise ValueError(f"divergence.stop_after={printable(str(stop_after))}: must be 1 or more steps")
        self.stop_after = stop_after
        self.total = 0
        self.in_a_row = 0
        self._expected: tuple[Step, Arriving, Callable[[int], str]] | None = None

    def state_dict(self) -> dict[str, int]:
        self.settle()
        return {"total": self.total, "in_a_row": self.in_a_row}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.total, self.in_a_row = state["total"], state["in_a_row"]

    def expect(self, step: Step, source: Callable[[int], str]) -> None:
        """Count the step when its norm has come from the device, at the next `settle`; source: as in `skips`."""
        self._expected = step, Arriving(step.norm), source

    def settle(self) -> None:
        """Count the step that is expected, if there is one. Raises InputError, as `skips` does."""
        if self._expected is not None:
            (step, norm, source), self._expected = self._expected, None
            self._count(step, norm.read(), source)

    @property
    def last_was_skipped(self) -> bool:
        """Whether the last step is known to have been skipped. One that is expected counts as not: the weights are as
        they were."""
        return self._expected is None and self.in_a_row > 0

    def skips(self, step: Step, source: Callable[[int], str]) -> bool:
        """Whether the step is to be skipped, which is counted and logged.

        source: the source sentence of a row. Raises InputError for the last of `stop_after` in a row.
        """
        return self._count(step, float(step.norm), source)

    def _count(self, step: Step, norm: float, source: Callable[[int], str]) -> bool:
        if math.isfinite(norm):
            self.in_a_row = 0
            return False
        self.total += 1
        self.in_a_row += 1
        figures, batch = describe(step, norm, source)
        if self.in_a_row < self.stop_after:
            logger.info("%s: skipped; %s", figures, batch)
            return True
        row = f" in the last {self.in_a_row} steps" if self.in_a_row > 1 else ""
        raise InputError(
            f"{figures}: no finite gradients{row} (divergence.stop_after={self.stop_after}), so training has diverged "
            f"and nothing more is saved; {batch}. {TRY}"
        )

    def diverged(self, step: int) -> InputError:
        """The error where the model of optimizer step `step` gives probabilities that are not finite. Raises what
        `skips` raises."""
        self.settle()  # or the number of the step would be one too high
        after = f"; the {self.in_a_row} after it had no finite gradients and were skipped" if self.in_a_row else ""
        return InputError(
            f"step {step - self.in_a_row}: after it the model's probabilities are not finite numbers, so training has "
            f"diverged in this step{after}. {TRY}"
        )


def describe(step: Step, norm: float, source: Callable[[int], str]) -> tuple[str, str]:
    """The figures of a step, and the pairs of its micro-batches whose loss is not finite, or of all where each is."""
    parts = [(float(loss), rows.tolist()) for loss, rows in step.parts]
    if dist.is_initialized():
        shares: list[list[tuple[float, list[int]]]] = [[] for _ in range(dist.get_world_size())]
        dist.all_gather_object(shares, parts)
        parts = [part for share in shares for part in share]
    suspects = [rows for loss, rows in parts if not math.isfinite(loss)] or [rows for _, rows in parts]
    rows = [row for part in suspects for row in part]
    shown = "; ".join(f"{row} {source(row)[:40]!r}" for row in rows[:SHOWN])
    loss = sum(loss for loss, _ in parts)
    return (
        f"step {step.number}: loss {loss:.3g}, gradient norm {norm:.3g} at learning rate {step.rate:.2e}",
        f"its batch has {len(rows)} pairs, rows {shown}{' ...' if len(rows) > SHOWN else ''} of the training data",
    )
