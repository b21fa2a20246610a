"""Training callbacks: skipped steps, a progress display, early stopping, a clean stop on Ctrl-C."""

import contextlib
import logging
import math
import signal
import time
from typing import Any, cast

import pytorch_lightning as pl
import torch
from pytorch_lightning import Callback, Trainer
from torch import Tensor

from headcount.errors import InputError
from headcount.settings import Positive
from headcount.signals import signals_to

logger = logging.getLogger(__name__)

AGAIN = 1.0  # seconds in which a signal that comes again is the same one
TRY = "Try a smaller optimizer.lr or trainer.gradient_clip_val, more schedule.warmup_steps or trainer.precision=32-true"


class SkippedSteps:
    """Skips the optimizer steps whose gradient norm is not finite: weights, optimizer and averages stay as they were.

    The step still counts: its batch is used up, and the schedule goes on. stop_after: skipped steps in a row that end
    training.
    """

    def __init__(self, stop_after: Positive) -> None:
        self.stop_after = stop_after
        self.total = 0
        self.in_a_row = 0

    def state_dict(self) -> dict[str, int]:
        return {"total": self.total, "in_a_row": self.in_a_row}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.total, self.in_a_row = state["total"], state["in_a_row"]

    def skips(self, step: int, loss: Tensor | float, norm: float, rate: float) -> bool:
        """Whether optimizer step `step`, counted from 1, is to be skipped, by the norm of its gradients. Raises
        InputError for the last of `stop_after` skipped steps in a row."""
        if math.isfinite(norm):
            self.in_a_row = 0
            return False
        self.total += 1
        self.in_a_row += 1
        figures = f"step {step}: loss {loss:.3g}, gradient norm {norm:.3g} at learning rate {rate:.2e}"
        if self.in_a_row == self.stop_after:
            raise InputError(f"{figures}: no finite gradients in {self.in_a_row} steps in a row: diverged. {TRY}")
        logger.info("%s: skipped", figures)
        return True

    def diverged(self, step: int) -> InputError:
        """The error where the model gives probabilities that are not finite after optimizer step `step`."""
        last = step - self.in_a_row
        return InputError(f"step {last}: after it the model's probabilities are no finite numbers: diverged. {TRY}")


class TrainingProgress(Callback):
    """Progress display: forty times in a run or more, mean loss since the last line, learning rate, real tokens a
    second, steps skipped and time left. It also counts, over all ranks and across interruptions: `tokens` (of both
    sides, no padding), `seconds` with validation, and `step_seconds` without."""

    def __init__(self, skipped: SkippedSteps) -> None:
        self.skipped = skipped
        self.tokens = 0
        self.seconds = 0.0
        self.step_seconds = 0.0
        self._lap = 0.0
        self._shown = (0.0, 0)

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("tokens", "seconds", "step_seconds")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        vars(self).update(state_dict)

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        self._lap = time.perf_counter()
        self._shown = (self.step_seconds, self.tokens)

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        tokens = torch.tensor(batch.tokens, device=pl_module.device) if trainer.world_size > 1 else batch.tokens
        self.tokens += int(trainer.strategy.reduce(tokens, reduce_op="sum"))
        self._count(step=True)
        step = trainer.global_step
        new_step = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        if trainer.is_global_zero and new_step and step % max(1, trainer.max_steps // 40) == 0:
            self._show(step, trainer.max_steps, pl_module)

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        self._count(step=True)

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        self._count(step=False)

    on_train_end = on_validation_end

    def _count(self, step: bool) -> None:
        now = time.perf_counter()
        self.seconds += now - self._lap
        self.step_seconds += now - self._lap if step else 0.0
        self._lap = now

    def _show(self, step: int, steps: int, module: Any) -> None:
        """Log figures of the steps since the last line: a step has sentences of one length, so its loss says little."""
        seconds, tokens = self._shown
        self._shown = (self.step_seconds, self.tokens)
        rate = (self.tokens - tokens) / max(self.step_seconds - seconds, 1e-9)
        skipped = f"  {self.skipped.total:,} skipped" if self.skipped.total else ""
        figures = f"loss {module.recent_loss():.3f}  lr {module.rate:.1e}  {rate:,.0f} tokens/s{skipped}"
        minutes, seconds = divmod(round((steps - step) * self.step_seconds / step), 60)
        logger.info("step %d of %d  %s  %d:%02d left", step, steps, figures, minutes, seconds)


class EarlyStopping(pl.callbacks.EarlyStopping):
    """Early stopping with the patience of the config, whatever it was when the checkpoint was written."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({**state_dict, "patience": self.patience})

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        if self.wait_count >= self.patience:
            trainer.should_stop = True
            logger.info("nothing is left to train with validation.patience=%d", self.patience)


class StopOnInterrupt(Callback):
    """Ctrl-C, or a signal of a cluster (`headcount.signals.STOP`), lets the step or the validation in hand finish, then
    ends training in good order; a second one kills. `exit_code` is what the process should end with: 0
    unless it was stopped. `close` puts the handlers from before back, once the last checkpoint is written."""

    def __init__(self) -> None:
        self.exit_code = 0
        self._since = 0.0  # by the clock
        self._listening = contextlib.ExitStack()

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        def stop(number: int) -> None:
            # Of a cluster, a process and its parent, which hands it on, both get one.
            if self.exit_code and time.monotonic() - self._since < AGAIN:
                return
            if self.exit_code and trainer.world_size == 1:  # torchrun passes a Ctrl-C on that its processes have had
                self._listening.close()
                signal.raise_signal(number)
            self.exit_code, self._since = 128 + number, time.monotonic()
            if trainer.is_global_zero:
                logger.info("stopping after this step (once more to kill)")

        self._listening.enter_context(signals_to(stop))

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        # One process may see the signal a step before another: all must stop at the same one.
        stops = self.exit_code > 0
        if trainer.world_size > 1:  # a signal that comes meanwhile acts after the next step
            stops = trainer.strategy.reduce_boolean_decision(stops, all=False)
        if stops:
            self.exit_code = self.exit_code or 128 + signal.SIGINT
            trainer.should_stop = True
            if (batch_idx + 1) % cast("int", trainer.val_check_batch):
                trainer.limit_val_batches = 0  # at a stop, Lightning validates after any step

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        self.close()

    def close(self) -> None:
        self._listening.close()
