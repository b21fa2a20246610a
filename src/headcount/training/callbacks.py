"""Training callbacks: a progress display, early stopping, a clean stop on Ctrl-C."""

import contextlib
import logging
import signal
import sys
import time
from typing import Any, cast

import pytorch_lightning as pl
import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from headcount.data.batches import Batch
from headcount.signals import signals_to
from headcount.training.divergence import SkippedSteps

logger = logging.getLogger(__name__)


class TrainingProgress(Callback):
    """Progress display: mean loss since the last one, learning rate, real tokens a second and time left; a bar on a
    terminal, else a line from time to time.

    It also counts, over all ranks and across interruptions: `tokens` (source and target, no padding), `seconds` from
    the first step to the last with validation, and `step_seconds` without.

    skipped: the optimizer steps that are skipped, whose number is shown once there are some.
    """

    def __init__(self, skipped: SkippedSteps) -> None:
        self.skipped = skipped
        self.tokens = 0
        self.seconds = 0.0
        self.step_seconds = 0.0
        self._bar: Progress | None = None
        self._task: Any = None
        self._before = 0  # tokens of all processes until the last sum
        self._own = 0  # tokens of this process since
        self._lap = 0.0
        self._shown = (0.0, 0)

    def state_dict(self) -> dict[str, Any]:
        return {"tokens": self.tokens, "seconds": self.seconds, "step_seconds": self.step_seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.tokens = state_dict["tokens"]
        self.seconds = state_dict["seconds"]
        self.step_seconds = state_dict["step_seconds"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._lap = time.perf_counter()
        self._before, self._own = self.tokens, 0
        self._shown = (self.step_seconds, self.tokens)
        if trainer.is_global_zero and sys.stderr.isatty():
            figures, left = TextColumn("{task.fields[figures]}"), TimeRemainingColumn(compact=True)
            columns = (BarColumn(bar_width=16), MofNCompleteColumn(), figures, left, TextColumn("left"))
            self._bar = Progress(*columns, console=Console(stderr=True))
            self._task = self._bar.add_task("", total=trainer.max_steps, completed=trainer.global_step, figures="")
            self._bar.start()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: Batch, batch_idx: int
    ) -> None:
        self._own += batch.tokens
        self.tokens = self._before + self._own * trainer.world_size
        self._count(step=True)
        step = trainer.global_step
        if not trainer.is_global_zero or (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        if self._bar is not None:
            if step % 10 == 0:
                self._bar.update(self._task, completed=step, figures=self._figures(pl_module))
        elif step % max(1, trainer.max_steps // 40) == 0:
            minutes, seconds = divmod(round((trainer.max_steps - step) * self.step_seconds / step), 60)
            figures = self._figures(pl_module)
            logger.info("step %d of %d  %s  %d:%02d left", step, trainer.max_steps, figures, minutes, seconds)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._count(step=True)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._count(step=False)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._count(step=False)
        self._stop()
        self._sum_up(trainer, pl_module)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._sum_up(trainer, pl_module)
        checkpoint["callbacks"][self.state_key] = self.state_dict()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._stop()

    def _sum_up(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Count the tokens of all processes. Between two such moments each process takes its own count for the others',
        which saves communication at every step."""
        if trainer.world_size > 1:
            own = torch.tensor(self._own, device=pl_module.device)
            self._before, self._own = self._before + int(trainer.strategy.reduce(own, reduce_op="sum")), 0
            self.tokens = self._before

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _count(self, step: bool) -> None:
        now = time.perf_counter()
        if self._lap:
            self.seconds += now - self._lap
            self.step_seconds += now - self._lap if step else 0.0
        self._lap = now

    def _figures(self, module: Any) -> str:
        """Figures of the steps since the last call: one step has sentences of one length, so its loss says little."""
        seconds, tokens = self._shown
        self._shown = (self.step_seconds, self.tokens)
        rate = (self.tokens - tokens) / max(self.step_seconds - seconds, 1e-9)
        skipped = f"  {self.skipped.total:,} skipped" if self.skipped.total else ""
        return f"loss {module.recent_loss():.3f}  lr {module.rate:.1e}  {rate:,.0f} tokens/s{skipped}"


class EarlyStopping(pl.callbacks.EarlyStopping):
    """Early stopping with the patience of the config, whatever it was when the checkpoint was written."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({**state_dict, "patience": self.patience})

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.wait_count >= self.patience:
            trainer.should_stop = True
            logger.info("nothing is left to train with validation.patience=%d", self.patience)


class StopOnInterrupt(Callback):
    """Ctrl-C, or a signal of a cluster (`headcount.signals.STOP`), lets the step in hand finish, and a validation
    before it, then ends training in good order; a second one kills. `exit_code` is what the process should end with: 0
    unless it was stopped.

    Left to itself, Lightning would exit in the middle of a step, with half an update in the weights. `close` puts back
    the handlers that were there before. It is called when the last checkpoint is written, since a signal waits for it.
    """

    def __init__(self) -> None:
        self.exit_code = 0
        self._listening = contextlib.ExitStack()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        def stop(number: int) -> None:
            self.exit_code = 128 + number
            if trainer.world_size == 1:  # torchrun passes a Ctrl-C on that its processes have had already
                self._listening.close()
            if trainer.is_global_zero:
                logger.info("stopping after this step (once more to kill)")

        self._listening.enter_context(signals_to(stop))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
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

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self.close()

    def close(self) -> None:
        self._listening.close()
