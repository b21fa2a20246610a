"""Where a new training begins: in which directory, and with the config and weights of which run."""

import os
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf
from torch.distributed.rendezvous import rendezvous

from headcount.errors import InputError
from headcount.run.config import check_targets
from headcount.run.directory import read_config


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


def shared_directory(directory: Path) -> Path:
    """The first process's run directory, on all processes of a torchrun job."""
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        return directory
    store, rank, _ = next(rendezvous("env://"))
    if rank == 0:
        store.set("headcount/run_directory", str(directory))
    return Path(store.get("headcount/run_directory").decode())
