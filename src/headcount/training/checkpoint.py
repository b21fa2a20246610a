"""Checkpointing: the full training state of the newest step and of the one before it, each written whole."""

import io
import time
from pathlib import Path
from typing import Annotated, Any, cast
from zipfile import BadZipFile, ZipFile

import torch
from annotated_types import Gt
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.plugins.io import TorchCheckpointIO

from headcount.files import naming, replacing
from headcount.settings import Natural, Positive
from headcount.training.averaging import ScheduleFreeAverage, own_weights, save_weights

Minutes = Annotated[float, Gt(0)]


def check_checkpoint(path: Path) -> None:
    """Compare what a checkpoint holds with its checksums, a CRC-32 of each member of the zip archive that it is. Raises
    OSError, BadZipFile or another error of a damaged archive."""
    with ZipFile(path) as members:
        if wrong := members.testzip():
            raise BadZipFile(f"bad checksum of {wrong}")


def read_checkpoint(path: Path) -> Any:
    """The content of a checkpoint, from which nothing can run. Raises one of many errors for another file."""
    return torch.load(path, map_location="cpu", weights_only=True, mmap=True)


class CheckpointFile(TorchCheckpointIO):
    """Writes a checkpoint to its own file system alone: Lightning writes to the folder for temporary files first."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        content = io.BytesIO()
        torch.save(checkpoint, content)
        with naming(path, len(content.getbuffer())):
            Path(path).write_bytes(content.getbuffer())


class LastCheckpoint(Callback):
    """Writes the full training state to `checkpoints/last.ckpt` every `every` optimizer steps, at the first step
    `every_minutes` after the last checkpoint, by the clock of the first process, and at the end. The checkpoint before
    it stays beside it as `last-1.ckpt`. To be the last of the callbacks.

    A step with a validation is saved after it, so that a resumed run does nothing twice and leaves nothing out. After a
    skipped step training may have diverged: the state is written after the next one that is not skipped, or at the end.

    keep: steps whose weights are kept as well, in `checkpoints/step-N.safetensors`; 0: the initial ones.
    """

    def __init__(self, *, every: Positive, every_minutes: Minutes | None, keep: list[Natural]) -> None:
        self.every = every
        self.every_minutes = every_minutes
        self.keep = frozenset(keep)
        self._saved: int | None = None  # the step of last.ckpt
        self._saved_at = 0.0  # by the clock
        self._due = False

    def on_load_checkpoint(self, trainer: Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        self._saved = step = checkpoint["global_step"]
        # A run may go on with fewer devices that accumulate more, or the other way round: its batches are counted anew.
        batches = step * trainer.accumulate_grad_batches
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        for counts in (progress["total"], progress["current"]):
            behind = counts["processed"] - counts["completed"]
            counts.update(ready=batches, started=batches, processed=batches, completed=batches - behind)

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        self._saved_at = time.monotonic()
        if not trainer.global_step:
            self._keep(trainer, pl_module)

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        self._keep(trainer, pl_module)
        late = False
        if self.every_minutes is not None:
            late = time.monotonic() - self._saved_at >= 60 * self.every_minutes
            late = bool(trainer.strategy.broadcast(late)) if trainer.world_size > 1 else late
        self._due = self._due or late or trainer.global_step % self.every == 0
        if (batch_idx + 1) % cast("int", trainer.val_check_batch):
            self._save_if_due(trainer, pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        self._save_if_due(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        if trainer.global_step != self._saved:
            self.save(trainer)

    def _save_if_due(self, trainer: Trainer, pl_module: Any) -> None:
        if self._due and not pl_module.skipped.in_a_row:
            self.save(trainer)

    def save(self, trainer: Trainer) -> None:
        """Write last.ckpt whole; the file that was there becomes last-1.ckpt. All processes have a part in the state,
        and the first one writes it."""
        last = Path(trainer.default_root_dir) / "checkpoints" / "last.ckpt"
        if trainer.is_global_zero:
            last.parent.mkdir(exist_ok=True)  # the run's own directory is there, or gone
            with replacing(last, last.with_name("last-1.ckpt")) as beside:
                trainer.save_checkpoint(beside)
        else:
            trainer.save_checkpoint(last)
        self._saved, self._saved_at, self._due = trainer.global_step, time.monotonic(), False

    def _keep(self, trainer: Trainer, pl_module: Any) -> None:
        if trainer.global_step in self.keep and trainer.is_global_zero:
            model, step = pl_module.model, trainer.global_step
            path = Path(trainer.default_root_dir) / "checkpoints" / f"step-{step}.safetensors"
            path.parent.mkdir(exist_ok=True)
            own = [each for each in trainer.callbacks if isinstance(each, ScheduleFreeAverage)]  # type: ignore[attr-defined]
            save_weights(own[0].weights(model, step) if own else own_weights(model), path)
