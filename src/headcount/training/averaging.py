"""The mean of the last few checkpoints: steadier than any one of them (Vaswani et al. 2017, section 6.1)."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from safetensors.torch import load_file, save_file
from torch import Tensor

Weights = dict[str, Tensor]


class CheckpointAverage(Callback):
    """Keeps the weights of the last `last` snapshots, `every` optimizer steps apart, and can average them.

    Close together is best: a mean over thousands of steps costs BLEU. The snapshots are files
    (`checkpoints/average/<step>.safetensors`), so that they outlive an interruption. Raises ValueError for numbers
    below 1.
    """

    def __init__(self, last: int = 10, every: int = 100) -> None:
        for name, value in {"last": last, "every": every}.items():
            if value < 1:
                raise ValueError(f"averaging.{name}={value}: must be 1 or more; last=1 takes the last weights alone")
        self.last = last
        self.every = every
        self.directory = Path()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.directory = Path(trainer.default_root_dir) / "checkpoints" / "average"

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        step = trainer.global_step
        new_step = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        if trainer.is_global_zero and new_step and step % self.every == 0:
            self._snapshot(cast("torch.nn.Module", pl_module.model), step)

    def average(self, model: torch.nn.Module, step: int) -> Weights:
        """Mean of the snapshots of up to `last` x `every` steps before `step`, the weights of now among them."""
        if not self._file(step).exists():
            self._snapshot(model, step)
        return mean_weights(load_file(path) for path in self._files(step))

    def _file(self, step: int) -> Path:
        return self.directory / f"{step:08d}.safetensors"

    def _files(self, step: int) -> list[Path]:
        # Not beyond `step`: after a resume from an earlier checkpoint, later snapshots belong to a run given up. And
        # none off the beat: such a one is of a stop, and a run that was never stopped would not have it.
        steps = {int(path.stem): path for path in self.directory.glob("*.safetensors")}
        kept = [taken for taken in sorted(steps) if taken <= step and (taken % self.every == 0 or taken == step)]
        return [steps[taken] for taken in kept[-self.last :]]

    def _snapshot(self, model: torch.nn.Module, step: int) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        save_weights(own_weights(model), self._file(step))
        kept = set(self._files(step))
        for path in self.directory.glob("*.safetensors"):
            if path not in kept:
                path.unlink()


def own_weights(model: torch.nn.Module) -> Weights:
    """Every parameter once, on the CPU: a tied matrix under the first of its names."""
    return {name: parameter.detach().cpu().contiguous() for name, parameter in model.named_parameters()}


def save_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write weights beside and rename."""
    beside = path.with_name(path.name + ".part")
    save_file(dict(weights), beside)
    beside.rename(path)


def mean_weights(checkpoints: Iterable[Weights]) -> Weights:
    """The mean of each tensor over the checkpoints, summed in float64 so that their order hardly matters."""
    total: Weights = {}
    count = 0
    for weights in checkpoints:
        count += 1
        for name, tensor in weights.items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / count).float() for name, tensor in total.items()}
