"""Where a training begins: in which directory, and with the config, weights and steps of which run."""

import os
from collections.abc import Collection
from pathlib import Path

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf
from torch.distributed.rendezvous import rendezvous

from headcount.errors import InputError
from headcount.run.config import check_targets
from headcount.run.directory import is_finished, read_config, show


def resumed_config(directory: Path, trust: Collection[str]) -> DictConfig:
    """The config of the run to go on with, and on top of it the single settings given on the command line.

    Raises InputError for a directory that is not a run, a config that would build what is not trusted, or an override
    that exchanges a whole part.
    """
    resumed = read_config(directory)
    check_targets(OmegaConf.to_container(resumed), "", trust, f"{directory}: ")
    for override in command_line():
        key = override.key_or_group
        if key in ("resume", "debug", "trust"):
            continue
        parent, _, name = key.rpartition(".")
        group = OmegaConf.select(resumed, parent) if parent else resumed
        if not isinstance(group, DictConfig) or name not in group or OmegaConf.is_config(group[name]):
            raise InputError(
                f"{override.input_line or key}: resume goes by {directory}/config.yaml, where single settings can "
                f"be changed, such as trainer.max_steps=N"
            )
        group[name] = override.value()
    return resumed


def initial_config(config: DictConfig, directory: Path) -> DictConfig:
    """The config of a training that begins with the weights of the run in `directory`: that run's model and tokenizer,
    and on top of them the single settings of the model given on the command line.

    Raises InputError for a directory that is not a run, a config that would build what is not trusted, or an override
    that another model or tokenizer would need.
    """
    run = read_config(directory)
    check_targets(OmegaConf.to_container(run), "", config.trust, f"{directory}: ")
    initial = config.copy()
    initial.model, initial.tokenizer = run.model, run.tokenizer
    for override in command_line():
        part, _, setting = override.key_or_group.partition(".")
        if part == "tokenizer" or override.key_or_group in ("model", "data.vocab_size"):
            raise InputError(
                f"{override.input_line}: init_from={directory} brings its own model and tokenizer; leave it out"
            )
        if part == "model":
            OmegaConf.update(initial.model, setting, override.value(), force_add=True)
    return initial


def command_line() -> list[Override]:
    """The overrides that this script was started with."""
    return OverridesParser.create().parse_overrides(list(HydraConfig.get().overrides.task))


def steps_done(directory: Path, config: DictConfig) -> int:
    """Optimizer steps behind the checkpoint from which the run in `directory` is to go on.

    Raises InputError where there is none, or nothing is left to do.
    """
    checkpoint = directory / "checkpoints" / "last.ckpt"
    if not checkpoint.is_file():
        raise InputError(f"{show(checkpoint)}: no such file, so there is nothing to resume; start anew without resume=")
    steps: int = torch.load(checkpoint, map_location="cpu", weights_only=True, mmap=True)["global_step"]
    if steps > config.trainer.max_steps or (steps == config.trainer.max_steps and is_finished(directory)):
        raise InputError(
            f"{show(checkpoint)} is at step {steps} of {config.trainer.max_steps}: to go on, raise trainer.max_steps; "
            "to score it, use scripts/evaluate.py"
        )
    return steps


def shared_directory(directory: Path) -> Path:
    """The first process's run directory, on all processes of a torchrun job."""
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        return directory
    store, rank, _ = next(rendezvous("env://"))
    if rank == 0:
        store.set("headcount/run_directory", str(directory))
    return Path(store.get("headcount/run_directory").decode())
