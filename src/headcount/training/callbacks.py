"""Training callbacks: a progress display, checkpoints to resume from, early stopping, a clean stop on Ctrl-C."""

import contextlib
import io
import logging
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytorch_lightning as pl
import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.plugins.io import TorchCheckpointIO
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import nn

from headcount.data.batches import Batch
from headcount.files import naming, replacing
from headcount.signals import signals_to
from headcount.training.averaging import ScheduleFreeAverage, own_weights, save_weights
from headcount.training.divergence import SkippedSteps
from headcount.training.loaded_state import check_counts
from headcount.training.seal import seal

AGREE_EVERY = 20  # optimizer steps after which processes with GPUs ask each other whether to stop

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
        self._before = 0  # tokens of all processes until this start
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
            self._bar = Progress(
                BarColumn(bar_width=16),
                MofNCompleteColumn(),
                TextColumn("{task.fields[figures]}"),
                TimeRemainingColumn(compact=True),
                TextColumn("left"),
                console=Console(stderr=True),
            )
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
            logger.info(
                "step %d of %d  %s  %d:%02d left", step, trainer.max_steps, self._figures(pl_module), minutes, seconds
            )

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
        """Count the tokens of all processes. Between two such moments each takes its own count for that of the others,
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
        """Of the steps since the last call: the mean loss, since that of one step is of sentences of one length."""
        seconds, tokens = self._shown
        self._shown = (self.step_seconds, self.tokens)
        rate = (self.tokens - tokens) / max(self.step_seconds - seconds, 1e-9)
        skipped = f"  {self.skipped.total:,} skipped" if self.skipped.total else ""
        return f"loss {module.recent_loss():.3f}  lr {module.rate:.1e}  {rate:,.0f} tokens/s{skipped}"


class CheckpointFile(TorchCheckpointIO):
    """Writes a checkpoint to its own file system alone: Lightning writes to the folder for temporary files first."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        content = io.BytesIO()
        torch.save(checkpoint, content)
        with naming(path, len(content.getbuffer())):
            Path(path).write_bytes(content.getbuffer())


class LastCheckpoint(Callback):
    """Checkpointing: writes the full training state to `checkpoints/last.ckpt` every `every` optimizer steps, at the
    first step `every_minutes` after the last checkpoint (None: never for that), and at the end. The checkpoint before
    it stays beside it as `last-1.ckpt`. Each has a checksum (`headcount.training.seal`).

    The state of step N is written when step N + 1 begins. Then N has been validated and its row of the curves has been
    written, so a run resumed from there does nothing twice and leaves nothing out, whenever it was killed. Where a
    signal cut the validation of N off, the checkpoint says so, and the resumed run begins with that validation. Where N
    was skipped, since its gradients were not finite, training may have diverged: the state is written after the next
    step that is not, or where training ends.

    keep: optimizer steps after which the weights are kept as well, in `checkpoints/step-N.safetensors`, so that the
    heads can be followed through training; 0 keeps the initial weights.

    Raises ValueError for `every` below 1, `every_minutes` that is not above 0, and for steps that are no whole numbers
    from 0 on.
    """

    def __init__(self, *, every: int, every_minutes: float | None, keep: Sequence[int]) -> None:
        if every < 1:
            raise ValueError(f"checkpoint.every={every}: must be 1 or more optimizer steps")
        if every_minutes is not None and not every_minutes > 0:
            raise ValueError(f"checkpoint.every_minutes={every_minutes}: must be above 0, or null")
        if any(isinstance(step, bool) or not isinstance(step, int) or step < 0 for step in keep):
            raise ValueError(f"checkpoint.keep={list(keep)}: must be optimizer steps, such as [0,100,1000]")
        self.every = every
        self.every_minutes = every_minutes
        self.keep = frozenset(keep)
        self.validation_due = False  # the step is one to validate at, and that has not been done
        self._saved: int | None = None  # the step of last.ckpt
        self._saved_at = 0.0  # by the clock
        self._due = False
        self._max_steps = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._saved_at = time.monotonic()
        if not trainer.global_step:
            self._keep(trainer, pl_module)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int) -> None:
        step = trainer.global_step
        begins = batch_idx % trainer.accumulate_grad_batches == 0
        if not begins or not step or step == self._saved:
            return
        self._due = self._due or step % self.every == 0 or self._is_late(trainer)
        if not self._due:
            return
        pl_module.skipped.settle()  # type: ignore[operator,union-attr]
        if not pl_module.skipped.in_a_row:  # type: ignore[union-attr]
            self.save(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        self.validation_due = (batch_idx + 1) % cast("int", trainer.val_check_batch) == 0
        if (batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            self._keep(trainer, pl_module)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._max_steps:
            trainer.fit_loop.epoch_loop.max_steps, self._max_steps = self._max_steps, 0

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.validation_due = False

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.save(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if isinstance(exception, ValidationStopped):
            self.save(trainer)

    def save(self, trainer: Trainer) -> None:
        """Write last.ckpt whole; the file that was there becomes last-1.ckpt, unless it is of the same step. All
        processes have a part in the state, and the first one writes it."""
        last = Path(trainer.default_root_dir) / "checkpoints" / "last.ckpt"
        if trainer.is_global_zero:
            last.parent.mkdir(exist_ok=True)  # the run's own directory is there, or gone
            before = last.with_name("last-1.ckpt") if trainer.global_step != self._saved else None
            with replacing(last, before) as beside:
                trainer.save_checkpoint(beside)
                seal(beside)
        else:
            trainer.save_checkpoint(last)
        self._saved, self._saved_at, self._due = trainer.global_step, time.monotonic(), False

    def _is_late(self, trainer: Trainer) -> bool:
        """Whether `every_minutes` have gone by, by the clock of the first process."""
        if self.every_minutes is None:
            return False
        late = time.monotonic() - self._saved_at >= 60 * self.every_minutes
        return bool(trainer.strategy.broadcast(late)) if trainer.world_size > 1 else late

    def _keep(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.global_step in self.keep and trainer.is_global_zero:
            model = cast("nn.Module", pl_module.model)
            path = Path(trainer.default_root_dir) / "checkpoints" / f"step-{trainer.global_step}.safetensors"
            path.parent.mkdir(exist_ok=True)
            own = [each for each in trainer.callbacks if isinstance(each, ScheduleFreeAverage)]  # type: ignore[attr-defined]
            weights = own[0].weights(model, trainer.global_step) if own else own_weights(model)
            save_weights(weights, path)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint["validation_due"] = self.validation_due

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._saved = step = checkpoint["global_step"]
        loops = checkpoint["loops"]["fit_loop"]
        check_counts(loops, trainer.fit_loop.state_dict())
        check_counts(checkpoint["callbacks"], {each.state_key: each.state_dict() for each in trainer.callbacks})  # type: ignore[attr-defined]
        check_counts(checkpoint, {"skipped_steps": SkippedSteps(1).state_dict()})
        counted = loops["epoch_loop.batch_progress"]["total"]
        # Without the entry: written by an earlier version, in the midst of a step's end and before its validation.
        cut_off = checkpoint.get("validation_due", counted["completed"] < counted["processed"])
        batches = step * trainer.accumulate_grad_batches
        self.validation_due = cut_off and batches % cast("int", trainer.val_check_interval) == 0
        loops.update(_loops_at(step, batches, self.validation_due))
        if self.validation_due and step == trainer.max_steps:
            # Lightning would find nothing left to do: let it begin, until it validates.
            self._max_steps, trainer.fit_loop.epoch_loop.max_steps = step, step + 1


def _loops_at(step: int, batches: int, validation_due: bool) -> dict[str, Any]:
    """The counters of Lightning's loops after `step` optimizer steps and `batches` batches of the one endless epoch.

    Lightning's own counters differ with the moment: they would count an epoch more at each end of training, and log a
    step late after some. With these, training resumes at the validation of `step`, or at the step after it.
    """

    nothing = dict.fromkeys(("ready", "started", "processed", "completed"), 0)
    begun = {**nothing, "ready": 1, "started": 1}
    train = {"ready": batches, "started": batches, "processed": batches, "completed": batches - (not validation_due)}
    valid = begun if validation_due else nothing
    return {
        "epoch_progress": {"total": begun, "current": begun},
        "epoch_loop.batch_progress": {"total": train, "current": train, "is_last_batch": False},
        "epoch_loop.val_loop.batch_progress": {"total": valid, "current": nothing, "is_last_batch": False},
        "epoch_loop.state_dict": {"_batches_that_stepped": step - 1},
    }


class EarlyStopping(pl.callbacks.EarlyStopping):
    """Early stopping with the patience of the config, whatever it was when the checkpoint was written."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({**state_dict, "patience": self.patience})

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.wait_count >= self.patience:
            trainer.should_stop = True
            logger.info(
                "the last %d validations were no better: nothing is left to train with validation.patience=%d",
                self.wait_count,
                self.patience,
            )


class ValidationStopped(BaseException):
    """A signal to stop came during a validation."""


class StopOnInterrupt(Callback):
    """Ctrl-C, or a signal of a cluster (`headcount.signals.STOP`), lets the step in hand finish, then ends training in
    good order; a second one kills. `exit_code` is what the process should end with: 0 unless it was stopped.

    A validation is not waited for: a single process raises ValidationStopped out of it, several skip the one that comes
    next. The checkpoint says so (see `LastCheckpoint`). To be the first of the callbacks, so that nothing has been made
    of the figures of a validation that is cut off.

    Left to itself, Lightning would exit in the middle of a step, with half an update in the weights. `close` puts back
    the handlers that were there before. It is called when the last checkpoint is written, since a signal waits for it.
    """

    def __init__(self) -> None:
        self.exit_code = 0
        self._listening = contextlib.ExitStack()
        self._validating = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        def stop(number: int) -> None:
            self.exit_code = 128 + number
            if trainer.world_size == 1:  # torchrun passes a Ctrl-C on that its processes have had already
                self._listening.close()
            if trainer.is_global_zero:
                logger.info("stopping after this step (once more to kill)")
            if self._validating and trainer.world_size == 1:
                raise ValidationStopped

        self._listening.enter_context(signals_to(stop))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        if (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        # One rank may see the signal a step before another: all must stop at the same one. To agree makes them wait for
        # their GPUs, if they have such.
        agree = pl_module.device.type == "cpu" or trainer.global_step % AGREE_EVERY == 0
        if trainer.world_size > 1 and not agree:
            return
        stops = self.exit_code > 0
        if trainer.world_size > 1:  # a signal that comes meanwhile acts after the next step
            stops = trainer.strategy.reduce_boolean_decision(stops, all=False)
        if stops:
            self.exit_code = self.exit_code or 128 + signal.SIGINT
            trainer.should_stop = True
            trainer.limit_val_batches = 0  # Lightning would validate before it stops, and somebody is waiting

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._validating = True
        if self.exit_code and trainer.world_size == 1:  # since the end of the step
            raise ValidationStopped

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._validating = False

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self.close()

    def close(self) -> None:
        self._listening.close()
