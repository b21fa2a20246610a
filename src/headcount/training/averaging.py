"""Which weights a run ends with: a mean of the last few checkpoints, a moving mean of all, or those that translated
the validation set best."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from safetensors.torch import load_file, save_file
from torch import Tensor

from headcount.files import replacing

Weights = dict[str, Tensor]


class Averaging(Protocol):
    """A Lightning callback that follows the training, and at its end gives the weights to keep."""

    def weights(self, model: torch.nn.Module, step: int) -> Weights:
        """The weights to use when training is at optimizer step `step` and `model` has those of now."""
        ...


class CheckpointAverage(Callback):
    """The mean of the last few checkpoints: steadier than any one of them (Vaswani et al. 2017, section 6.1).

    Keeps the weights of the last `last` snapshots, `every` optimizer steps apart, and can average them.

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

    def weights(self, model: torch.nn.Module, step: int) -> Weights:
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


class ExponentialAverage(Callback):
    """A moving mean of the weights (Polyak and Juditsky 1992), of which each optimizer step replaces the share
    1 - decay; in the form of Kingma and Ba 2015, section 7.2, where the first steps weigh no more than they should.

    decay: 0.999 is a mean over about the last thousand steps. Raises ValueError for a decay outside (0, 1).
    """

    def __init__(self, decay: float = 0.999) -> None:
        if not 0 < decay < 1:
            raise ValueError(f"averaging.decay={decay}: between 0 and 1, such as 0.999")
        self.decay = decay
        self.steps = 0
        self.mean: Weights = {}

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "mean": self.mean}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.steps, self.mean = state_dict["steps"], state_dict["mean"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # A checkpoint's mean comes to the CPU, wherever the model is.
        self.mean = {name: tensor.to(pl_module.device) for name, tensor in self.mean.items()}

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        if trainer.is_global_zero and (batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            self.follow(cast("torch.nn.Module", pl_module.model))

    @torch.no_grad()
    def follow(self, model: torch.nn.Module) -> None:
        """Take the weights of now into the mean."""
        now = dict(model.named_parameters())
        if not self.mean:
            self.mean = {name: torch.zeros_like(parameter) for name, parameter in now.items()}
        self.steps += 1
        share = (1 - self.decay) / (1 - self.decay**self.steps)
        torch._foreach_lerp_([self.mean[name] for name in now], list(now.values()), share)

    def weights(self, model: torch.nn.Module, step: int) -> Weights:
        return {name: tensor.cpu() for name, tensor in self.mean.items()} or own_weights(model)


class BestCheckpoint(Callback):
    """The weights with which the validation set was translated best, by the BLEU of greedy search, or found most
    probable (`metric` loss). Before the first validation, the weights of now.

    They are a part of the checkpoint, so that they are always those of its `best`. Raises ValueError for another
    metric.
    """

    def __init__(self, metric: str = "bleu") -> None:
        if metric not in METRICS:
            raise ValueError(f"averaging.metric={metric}: must be one of {', '.join(METRICS)}")
        self.metric = metric
        self.best: float | None = None
        self.best_weights: Weights = {}
        self.directory = Path()

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "weights": self.best_weights}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best = state_dict["best"]
        if "weights" in state_dict:
            self.best_weights = state_dict["weights"]
        elif self.best is not None:  # earlier versions kept them in a file of their own
            self.best_weights = load_file(self.directory / "best.safetensors")

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.directory = Path(trainer.default_root_dir) / "checkpoints"

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        name, sign = METRICS[self.metric]
        value = float(trainer.callback_metrics[name])
        if trainer.is_global_zero and (self.best is None or sign * value > sign * self.best):
            self.best = value
            now = own_weights(cast("torch.nn.Module", pl_module.model))
            self.best_weights = {name: tensor.clone() for name, tensor in now.items()}

    def weights(self, model: torch.nn.Module, step: int) -> Weights:
        return self.best_weights or own_weights(model)


METRICS = {"bleu": ("valid/bleu", 1), "loss": ("valid/loss", -1)}  # what Lightning calls it, and 1 if more is better


def own_weights(model: torch.nn.Module) -> Weights:
    """Every parameter once, on the CPU: a tied matrix under the first of its names."""
    return {name: parameter.detach().cpu().contiguous() for name, parameter in model.named_parameters()}


def save_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write weights to a .safetensors file, whole or not at all, see `headcount.files.replacing`. Raises OSError."""
    with replacing(path) as beside:
        save_file(dict(weights), beside)


def mean_weights(checkpoints: Iterable[Weights]) -> Weights:
    """The mean of each tensor over the checkpoints, summed in float64 so that their order hardly matters."""
    total: Weights = {}
    count = 0
    for weights in checkpoints:
        count += 1
        for name, tensor in weights.items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / count).float() for name, tensor in total.items()}
