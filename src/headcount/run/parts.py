"""Parts of a training run: all that its config describes, built and checked before any data is read."""

import logging
import math
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.callbacks import LambdaCallback
from pytorch_lightning.loggers import Logger

from headcount.data.module import TranslationData
from headcount.decoding.search import SearchMethod
from headcount.errors import InputError, first_line
from headcount.evaluation.metrics import bleu_tokenizer
from headcount.machine import choose_precision
from headcount.model.dropout import DropoutRates
from headcount.model.transformer import Transformer
from headcount.run.config import Problems, build, build_data
from headcount.run.design import Design
from headcount.run.values import fits, typed
from headcount.training.averaging import MONITORED, Averaging, ExponentialAverage, ScheduleFreeAverage
from headcount.training.callbacks import (
    CheckpointFile,
    EarlyStopping,
    LastCheckpoint,
    StopOnInterrupt,
    TrainingProgress,
)
from headcount.training.divergence import SkippedSteps
from headcount.training.loss import RDrop
from headcount.training.module import OptimizerFactory
from headcount.training.schedule import Constant, Noam
from headcount.training.sharded import FullySharded

logger = logging.getLogger(__name__)

RATES = ("lr", "adamw_lr", "other_lr")  # learning rates of an optimizer
LEAST_FACTOR = 0.1  # of schedule=noam, below which it is the rate of another schedule
DROPOUTS = tuple(field.name for field in fields(DropoutRates))  # settings of a model
SCHEDULE_FREE = "schedulefree.AdamWScheduleFree"
SHARDABLE = "torch.optim.AdamW"  # the only optimizer that was tried with trainer=fsdp
NEEDS = {  # settings that act only beside another
    "model.local_window": "model.local_heads",
    "model.qk_scale": "model.qk_norm",
    "data.batch_ramp_start": "data.batch_ramp",
}
WITHOUT_EFFECT = ("profiler", "sync_batchnorm")  # no log shows a profile, and no model has batch norm
PARTIAL = (  # settings of Lightning's trainer that train or validate on a part
    *("fast_dev_run", "limit_train_batches", "limit_val_batches", "max_time", "overfit_batches"),
    "reload_dataloaders_every_n_epochs",
)
PLACEHOLDER_VOCABULARY = 8  # pieces, for a model that is built only to see whether its settings fit


@dataclass
class Parts:
    """The parts of a training run."""

    data: TranslationData
    trainer: pl.Trainer
    task: dict[str, Any]  # loss, optimizer, schedule, skipped steps, and the settings of validation
    averaging: Averaging | None
    checkpoint: LastCheckpoint
    loggers: list[Logger]  # not the trainer's before it starts: Lightning would open them before it loads a checkpoint
    interrupt: StopOnInterrupt
    progress: TrainingProgress
    search: SearchMethod
    precision: str  # the one chosen, and why


def build_parts(config: DictConfig, directory: Path) -> Parts:
    """Everything that a config describes, the model too (without memory, to see that its settings fit).

    Raises InputError with a line for each setting that is wrong.
    """
    problems = Problems()
    attempt = problems.attempt
    with torch.device("meta"):
        attempt(build, config.model, "model", vocab_size=PLACEHOLDER_VOCABULARY)
    task = {name: attempt(build, config[name], name) for name in ("loss", "optimizer", "schedule")}
    if task["optimizer"] is not None:
        attempt(build_optimizer, task["optimizer"])
    search = attempt(build, config.search, "search")
    averaging = attempt(build_averaging, config)
    checkpoint = attempt(build, config.checkpoint, "checkpoint")
    data = attempt(build_data, config)
    language = data.target_language if data else ""
    tokenizer = attempt(bleu_tokenizer, language, config.get("bleu_tokenizer"))
    # A run from before the setting stops at the first such step, as it did then.
    task["skipped"] = attempt(SkippedSteps, OmegaConf.select(config, "divergence.stop_after", default=1))
    attempt(check_values, config)
    attempt(Design.of, OmegaConf.to_container(config, resolve=True))
    interrupt, progress = StopOnInterrupt(), TrainingProgress(task["skipped"])
    callbacks = [interrupt, progress, averaging]
    if config.validation.patience is not None:
        monitor, sign = MONITORED.get(config.validation.metric, MONITORED["loss"])
        mode = "max" if sign > 0 else "min"
        callbacks.append(EarlyStopping(monitor, patience=config.validation.patience, mode=mode))
    callbacks.append(checkpoint)  # after all whose state it keeps
    callbacks.append(LambdaCallback(on_train_end=lambda *_: interrupt.close()))  # a signal waits for that checkpoint
    precision, why = choose_precision(config.trainer.precision, config.trainer.accelerator)
    loggers = [attempt(build_logger, node, f"logger.{name}", directory) for name, node in config.logger.items()]
    trainer = attempt(build_trainer, config, directory, precision, [each for each in callbacks if each is not None])
    problems.raise_all()
    task |= {"samples": config.validation.samples, "bleu_tokenizer": tokenizer}
    task |= {"cuda_graphs": config.get("cuda_graphs") == "auto"}
    return Parts(
        data, trainer, task, averaging, checkpoint, loggers, interrupt, progress, search, f"{precision}, {why}"
    )


def build_trainer(config: DictConfig, directory: Path, precision: str, callbacks: list[pl.Callback]) -> pl.Trainer:
    """Lightning's trainer, quiet, without an idea of epochs. Raises InputError, also for a GPU that isn't there."""
    accelerator = config.trainer.accelerator
    if accelerator in ("gpu", "cuda") and not torch.cuda.is_available():
        raise InputError(f"trainer.accelerator={accelerator}: no GPU found; use trainer=cpu")
    if accelerator == "mps" and not torch.backends.mps.is_available():
        raise InputError("trainer.accelerator=mps: no Apple GPU found; use trainer=cpu")
    every = config.validation.every, config.trainer.accumulate_grad_batches
    fixed: dict[str, Any] = {
        "default_root_dir": directory,
        "logger": False,
        "callbacks": callbacks,
        # Everything counts in optimizer steps: there is one endless epoch, with a validation every few batches.
        "max_epochs": -1,
        "check_val_every_n_epoch": None,
        # `check_values` and `build_data` report one that is not a number.
        "val_check_interval": math.prod(every) if all(fits(number, int) for number in every) else 1,
        "num_sanity_val_steps": 0,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "use_distributed_sampler": False,
    }
    check_fixed(config, fixed)
    trainer: pl.Trainer = build(config.trainer, "trainer", precision=precision, **fixed)
    trainer.strategy.checkpoint_io = CheckpointFile()
    return trainer


def check_fixed(config: DictConfig, fixed: Collection[str]) -> None:
    """Raises InputError, with a line for each, for settings of Lightning's trainer that would be ignored, and for those
    that train or validate on a part: a run that ends early would count as finished, or resume with other batches."""
    wrong = [
        f"trainer.{name}={config.trainer[name]}: is not a setting here; trainer.max_steps, validation, checkpoint and "
        "logger say what it would"
        for name in (*fixed, *PARTIAL)
        if name in config.trainer
    ]
    wrong += [
        f"trainer.{name}={config.trainer[name]}: would have no effect here; leave it out"
        for name in WITHOUT_EFFECT
        if name in config.trainer
    ]
    by = config.trainer.get("gradient_clip_algorithm") or "norm"
    if by != "norm":
        wrong.append(f"trainer.gradient_clip_algorithm={by}: must be norm, by which trainer.gradient_clip_val clips")
    if wrong:
        raise InputError("\n".join(wrong))


def build_logger(node: DictConfig, setting: str, directory: Path) -> Logger:
    """A logger that writes into `directory`. Raises InputError, also where it needs a package that is not there."""
    if not OmegaConf.is_dict(node):
        raise InputError(f"{setting}={node}: is no logger; leave it out with ~{setting}")
    make_logger = build(node, setting)
    rows = node.get("flush_logs_every_n_steps", 1)
    if not fits(rows, int) or rows < 1:
        raise InputError(f"{setting}.flush_logs_every_n_steps={rows}: must be 1 or more steps")
    try:
        logger: Logger = make_logger(save_dir=directory)
        place = logger.log_dir
        outside = place is not None and not Path(place).resolve().is_relative_to(directory.resolve())
    except ImportError as error:
        raise InputError(f"{setting}: {first_line(error)}; install it, or choose another logger") from error
    except (TypeError, ValueError) as error:  # such as of a name that is no text
        raise InputError(f"{setting}: {first_line(error)}; give another name or version") from error
    if outside:
        raise InputError(f"{setting}: would write to {place}, outside of the run; give another name or version")
    return logger


def build_averaging(config: DictConfig) -> Averaging | None:
    """The averaging of weights, None for none; that of the optimizer, if it has its own. Raises InputError, with a line
    for each, for settings that such an optimizer cannot have beside it."""
    if config.optimizer.get("_target_") != SCHEDULE_FREE:
        averaging: Averaging | None = build(config.averaging, "averaging")
        return averaging
    wrong = ["averaging: optimizer=schedule_free averages the weights itself; give averaging=none"]
    wrong = wrong if config.averaging else []
    if config.schedule.get("_target_") != class_path(Constant):
        wrong.append(
            "schedule: optimizer=schedule_free wants a constant rate after the warm-up; give schedule=constant"
        )
    if config.optimizer.betas[0] == 0:
        wrong.append("optimizer.betas: the first must be above 0 for optimizer=schedule_free, such as 0.9")
    if wrong:
        raise InputError("\n".join(wrong))
    return ScheduleFreeAverage()


def build_optimizer(optimizer: OptimizerFactory) -> None:
    """Build the optimizer of one parameter, to check its settings. Raises InputError."""
    try:
        optimizer([{"params": [torch.nn.Parameter(torch.zeros(1))]}])
    except Exception as error:  # each package has its own
        named = str(error).startswith("optimizer.")  # by our own classes; others don't
        raise InputError(str(error) if named else f"optimizer: {first_line(error)}") from error


def check_values(config: DictConfig) -> None:
    """Raises InputError, with a line for each, for values that none of our constructors checks."""
    at_least = {
        "validation.every": 1,
        "validation.samples": 0,
        "validation.patience": 1,
        "trainer.max_steps": 1,
        "trainer.log_every_n_steps": 1,
        "trainer.gradient_clip_val": 0,
    }
    wrong = []
    for setting, least in at_least.items():
        value = OmegaConf.select(config, setting)
        if setting.startswith("validation") and not fits(value, int | None if setting.endswith("patience") else int):
            wrong.append(f"{setting}={typed(value)}: must be a whole number")
        elif isinstance(value, int | float) and not value >= least:
            wrong.append(f"{setting}={value}: must be {least} or more")
    if (graphs := config.get("cuda_graphs", False)) not in ("auto", False):
        wrong.append(f"cuda_graphs={typed(graphs)}: must be auto or false")
    if not isinstance(config.get("compile", False), bool):
        wrong.append(f"compile={typed(config.compile)}: must be true or false")
    if config.get("compile") and config.model.get("_target_") != class_path(Transformer):
        wrong.append("compile=true: only a Transformer's layers can be compiled; leave it out")
    if config.validation.metric not in MONITORED:
        wrong.append(f"validation.metric={typed(config.validation.metric)}: must be one of {', '.join(MONITORED)}")
    if config.trainer.precision in (16, "16", "16-mixed", "16-true"):  # clipping would not undo the scale
        wrong.append(
            f"trainer.precision={config.trainer.precision}: float16 would need scaled gradients; give bf16-mixed, "
            "32-true or auto"
        )
    strategy = config.trainer.strategy
    finds = OmegaConf.is_dict(strategy) and (
        strategy.get("find_unused_parameters", False) or strategy.get("_target_") == class_path(FullySharded)
    )
    processes = (config.trainer.devices, config.trainer.get("num_nodes", 1))
    if processes != (1, 1) and config.model.get("layer_dropout") and not finds:
        # They would wait for the gradients of layers that one of them left out.
        wrong.append(
            f"model.layer_dropout={config.model.layer_dropout}: with several processes, add "
            "+trainer.strategy.find_unused_parameters=true, or leave it at 0"
        )
    for setting in RATES if config.schedule.get("_target_") == class_path(Noam) else ():
        rate = config.optimizer.get(setting)
        if isinstance(rate, int | float) and rate < LEAST_FACTOR:
            name = f"optimizer.{setting}"
            wrong.append(f"{name}={rate}: is a factor with schedule=noam, 1 in the paper; give {name}=1")
    rates = [config.model.get(name) for name in DROPOUTS]
    if config.loss.get("_target_") == class_path(RDrop) and not any(rates):
        wrong.append("loss: r_drop compares two passes that differ by dropout; give model.dropout=0.1 with it")
    start, steps = config.loss.get("start"), config.trainer.max_steps
    if fits(start, int) and fits(steps, int) and 0 < steps <= start:
        logger.warning(
            "loss.start=%d: the loss begins after the last of %d steps; until then it is another", start, steps
        )
    wrong += unfit_for_shards(config)
    if wrong:
        raise InputError("\n".join(wrong))


def without_effect(config: DictConfig, typed_names: Iterable[str]) -> list[str]:
    """A line for each setting that was typed and acts only beside another, which is off."""
    return [
        f"{name}={typed(OmegaConf.select(config, name))}: has no effect without {needed}"
        for name in typed_names
        if (needed := NEEDS.get(name)) and not OmegaConf.select(config, needed)
    ]


def class_path(kind: type) -> str:
    """The `_target_` of a class in a config."""
    return f"{kind.__module__}.{kind.__qualname__}"


def unfit_for_shards(config: DictConfig) -> list[str]:
    """What cannot be trained with sharded weights, a line a setting: what reads whole matrices, or each step's weights
    on one process alone."""
    if _target(config, "trainer.strategy") != class_path(FullySharded):
        return []
    wrong = []
    if (name := str(config.optimizer.get("_target_"))) != SHARDABLE:
        wrong.append(f"optimizer: {name.rpartition('.')[2]} cannot be used with trainer=fsdp; give optimizer=adamw")
    if _target(config, "averaging") == class_path(ExponentialAverage):
        wrong.append("averaging: ema cannot be used with trainer=fsdp; give averaging=checkpoints, best or none")
    if config.model.get("layer_dropout"):
        wrong.append(f"model.layer_dropout={config.model.layer_dropout}: must be 0 with trainer=fsdp")
    return wrong


def _target(config: DictConfig, name: str) -> Any:
    """The class of a node; None for what is no node, which is refused when it is built."""
    node = OmegaConf.select(config, name)
    return node.get("_target_") if isinstance(node, DictConfig) else None


def check_processes(config: DictConfig) -> None:
    """Raises InputError where the processes that torchrun started are not those that the trainer expects."""
    world, local = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    devices, machines = config.trainer.devices, config.trainer.get("num_nodes", 1)
    for name, value in (("devices", devices), ("num_nodes", machines)):
        if type(value) is not int or value < 1:
            raise InputError(f"trainer.{name}={typed(value)}: must be a whole number of 1 or more")
    if devices != local:
        raise InputError(
            f"trainer.devices={devices}, but one process was started: start one a device with "
            f"torchrun --nproc-per-node {devices} -m headcount train trainer=ddp"
            if world == 1
            else f"trainer.devices={devices}, but torchrun started {local} processes a machine: add trainer=ddp"
        )
    if machines != world // local:  # the others would be waited for
        raise InputError(
            f"trainer.num_nodes={machines}, but processes were started on {world // local}: add "
            f"trainer.num_nodes={world // local}, or start one a machine with torchrun --nnodes {machines}"
        )


def doubtful_restarts() -> list[str]:
    """A line where torchrun starts processes again beside the store of those that ended, in which they find the
    addresses of these, and fail or wait (PyTorch, issue 135712)."""
    old_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if not old_store or int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", 0)) == 0:
        return []
    return [
        "torchrun --max-restarts: processes that are started again may look for those that ended, and fail or wait; "
        "set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 for torchrun"
    ]
