"""Weight averaging: mean of the last checkpoints, exponential moving average, the best checkpoint, or the average of
a schedule-free optimizer.

The window of an average is a share of the planned run, `steps`, so a short run does not average its initial weights.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import torch
from annotated_types import Gt, Le, Lt
from pytorch_lightning import Callback, Trainer
from safetensors.torch import load_file, save
from torch import Tensor

from headcount.files import write_bytes
from headcount.settings import Positive

Weights = dict[str, Tensor]
ShareOfRun = Annotated[float, Gt(0), Le(1)]

MONITORED = {"bleu": ("valid/bleu", 1), "loss": ("valid/loss", -1)}  # Lightning's name, and 1 if higher is better


class Averaging(Callback):
    """Follows a run and gives averaged weights at its end. metric: of MONITORED, compares them with the last ones."""

    metric = "loss"

    def weights(self, model: torch.nn.Module, step: int) -> Weights:
        """The averaged weights at optimizer step `step`; `model` has the weights of that step."""
        return own_weights(model)


class CheckpointAverage(Averaging):
    """The mean of the last few checkpoints (Vaswani et al. 2017, section 6.1), files of `checkpoints/average`.

    share: of the run's steps, over which `last` of them are spread. every: optimizer steps between two, instead.
    """

    def __init__(self, *, last: Positive, share: ShareOfRun, every: Positive | None) -> None:
        self.last = self.count = last
        self.share = share
        self.every = every or 0
        self.directory = Path()

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        self.directory = Path(trainer.default_root_dir) / "checkpoints" / "average"
        if not self.every:
            window = max(1, round(self.share * trainer.max_steps))
            self.every = max(1, round(window / self.last))
            self.count = min(self.last, max(1, window // self.every))

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        if not trainer.global_step and trainer.is_global_zero:  # of a run that was begun here before
            for path in self.directory.glob("*.safetensors"):
                path.unlink()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        step, new_step = trainer.global_step, (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        if trainer.is_global_zero and new_step and self.count > 1 and step % self.every == 0:
            self.snapshot(pl_module.model, step)

    def weights(self, model: torch.nn.Module, step: int) -> Weights:
        """Mean of the snapshots in the window that ends at `step`, including the present weights."""
        self.snapshot(model, step)
        return mean_weights(load_file(path) for path in self._window(step))

    def snapshot(self, model: torch.nn.Module, step: int) -> None:
        """Keep the weights of `step`, and remove the snapshots that are not in the window which ends there."""
        self.directory.mkdir(parents=True, exist_ok=True)
        save_weights(own_weights(model), self.directory / f"{step:08d}.safetensors")
        for outside in set(self.directory.glob("*.safetensors")) - set(self._window(step)):
            outside.unlink()

    def _window(self, step: int) -> list[Path]:
        # Not beyond `step`: after a resume from an earlier checkpoint, later snapshots belong to an abandoned run. And
        # only multiples of `every`: others are from a stop, or from a run that was planned shorter.
        ages = {path: step - int(path.stem) for path in sorted(self.directory.glob("*.safetensors"))}
        window = [path for path, age in ages.items() if 0 <= age < self.every * self.count]
        return [path for path in window if ages[path] == 0 or int(path.stem) % self.every == 0][-self.count :]


class ExponentialAverage(Averaging):
    """Exponential moving average of the weights (Polyak and Juditsky 1992), in the form of Kingma and Ba 2015, section
    7.2, which corrects the bias of the first steps. Each optimizer step that is not skipped replaces the share
    1 - decay of it. It is kept in float32, for float64 weights in float64.

    share: of the run's steps that the mean covers: the decay is 1 - 1 / (share x steps). decay: instead of a share.
    """

    def __init__(self, *, share: ShareOfRun, decay: Annotated[float, Gt(0), Lt(1)] | None) -> None:
        self.share = share
        self.decay = decay
        self.steps = 0
        self.mean: Weights = {}
        self._followed: list[Tensor] = []  # in the order of the mean

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "mean": self.mean}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.steps, self.mean = state_dict["steps"], state_dict["mean"]

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        if self.decay is None:
            self.decay = 1 - 1 / max(1.0, self.share * trainer.max_steps)
        for name, weight in pl_module.model.named_parameters():
            exact = torch.promote_types(weight.dtype, torch.float32)
            mean = self.mean[name] if name in self.mean else torch.zeros_like(weight, dtype=exact)
            self.mean[name] = mean.to(weight.device)  # a checkpoint's comes to the CPU
        self._followed = [pl_module.model.get_parameter(name).detach() for name in self.mean]

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        stepped = (batch_idx + 1) % trainer.accumulate_grad_batches == 0 and not pl_module.skipped.in_a_row
        if trainer.is_global_zero and stepped:
            self.steps += 1
            decay, means = cast("float", self.decay), list(self.mean.values())
            weights = [weight.to(mean.dtype) for weight, mean in zip(self._followed, means, strict=True)]
            torch._foreach_lerp_(means, weights, (1 - decay) / (1 - decay**self.steps))

    def weights(self, model: torch.nn.Module, step: int) -> Weights:
        return {name: tensor.cpu() for name, tensor in self.mean.items()} if self.steps else own_weights(model)


class BestCheckpoint(Averaging):
    """The weights of the best validation: the highest BLEU of greedy search, or the lowest loss (`metric`); before the
    first one, the present weights."""

    def __init__(self, *, metric: Literal["bleu", "loss"]) -> None:
        self.metric = metric
        self.best: float | None = None
        self.best_weights: Weights = {}

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "weights": self.best_weights}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self.best_weights = state_dict["best"], state_dict["weights"]

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        name, sign = MONITORED[self.metric]
        value = float(trainer.callback_metrics[name])
        better = self.best is None or sign * value > sign * self.best
        if trainer.is_global_zero and better and math.isfinite(value):  # nothing is better than NaN
            now = own_weights(pl_module.model)
            self.best, self.best_weights = value, {name: tensor.clone() for name, tensor in now.items()}

    def weights(self, model: torch.nn.Module, step: int) -> Weights:
        return self.best_weights or own_weights(model)


class ScheduleFreeAverage(Averaging):
    """The average that the optimizer schedulefree.AdamWScheduleFree keeps: Defazio et al. 2024, "The road less
    scheduled", equations 3 to 5. In training the model is y = (1 - beta) z + beta x; its average x is validated, and
    kept. The optimizer's own eval() and train() compute x from y and back, which rounds y; here y itself is put back.
    """

    trainer: Trainer
    trained: list[Tensor]  # y, while the model is x

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        self.trainer = trainer

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        cast("Any", trainer.optimizers[0]).train()  # without which it refuses a step

    @torch.no_grad()
    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        self.trained = [parameter.clone() for parameter in pl_module.model.parameters()]
        for parameter in pl_module.model.parameters():
            parameter.copy_(self._average(parameter))

    @torch.no_grad()
    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        torch._foreach_copy_(list(pl_module.model.parameters()), self.trained)
        self.trained = []

    @torch.no_grad()
    def weights(self, model: torch.nn.Module, step: int) -> Weights:
        return {name: self._average(parameter).cpu() for name, parameter in model.named_parameters()}

    def _average(self, parameter: Tensor) -> Tensor:
        optimizer = self.trainer.optimizers[0]
        beta, _ = optimizer.param_groups[0]["betas"]
        state = optimizer.state.get(parameter, {})
        return parameter.lerp(state["z"].to(parameter), 1 - 1 / beta) if "z" in state else parameter.detach().clone()


def own_weights(model: torch.nn.Module) -> Weights:
    """Every parameter once, on the CPU: a tied matrix under the first of its names."""
    return {name: weight.detach().cpu().contiguous() for name, weight in model.named_parameters()}


def save_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write weights to a .safetensors file, whole or not at all, see `headcount.files.replacing`. Raises OSError."""
    write_bytes(path, save(dict(weights)))


def mean_weights(checkpoints: Iterable[Weights]) -> Weights:
    """The mean of each tensor over the checkpoints, summed in float64 so that their order hardly matters."""
    total: Weights = {}
    for count, weights in enumerate(checkpoints, start=1):
        for name, tensor in weights.items():
            total[name] = total[name] + tensor.double() if count > 1 else tensor.double()
    return {name: (tensor / count).float() for name, tensor in total.items()}
