"""OmegaConf resolvers: the functions of conf/ between ${ and }, beside Hydra's own; and the option that is no file."""

import itertools
import math
import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from headcount.files import show
from headcount.machine import visible_gpus
from headcount.model.feed_forward import balanced_feed_forward
from headcount.run.jobs import job_directory
from headcount.run.place import CONF, program
from headcount.run.values import AS_TRAINED

TUNED_TOKENS = 4096  # data.batch_tokens that the rates in conf/optimizer count as being for; they were found with 2,048


def run_directory(resume: str | None) -> str:
    """The directory of a single run: that of the run to resume, or a new one named after the time."""
    if resume and resume != "auto":
        known = isinstance(resume, str) and Path(resume).is_dir()  # `train` reports others
        return str(Path(resume).resolve()) if known else "."
    if int(os.environ.get("RANK", 0)) > 0:
        return "."  # the first process chooses: see `shared_directory`
    name = first = Path(f"runs/{datetime.now():%Y-%m-%d_%H-%M-%S}")
    for number in itertools.count(2):
        try:
            name.mkdir(parents=True)  # taken at once: of two runs started in the same second, each gets its own
            break
        except FileExistsError:
            name = first.with_name(f"{first.name}_{number}")
    return str(name)


def sweep_directory(name: str, recipe: str | None, data: str) -> str:
    """The directory of a sweep, named after it and its recipe, or its corpus."""
    return f"runs/{name}_{recipe or data}"


def swept(overrides: Iterable[str], params: Mapping[str, Any] | None) -> list[str]:
    """Names of the settings to which a sweep's command line, or its sweeper's `params`, gives several values.

    The config of one job has only its own values, so this is resolved once, in the whole sweep's config, and Hydra
    gives the cached result to every job.
    """
    words = [*overrides, *(f"{name}={value}" for name, value in (params or {}).items())]
    parsed = OverridesParser.create().parse_overrides(words)
    return [override.get_key_element() for override in parsed if override.is_sweep_override()]


def peak_rate(at_128: float, d_model: Any, batch_tokens: Any = TUNED_TOKENS) -> float:
    """Peak learning rate by width: inversely proportional to it, and `at_128` at d_model 128 and 4,096 batch tokens.

    With the batch it grows by the square root: with n times the tokens, a gradient has 1 / sqrt(n) of the noise, and in
    as many epochs there are 1 / n of the steps; a rate sqrt(n) times as large then gives the sum of the steps the same
    noise. This is the square root rule of Malladi et al. 2022, "On the SDEs and scaling rules for adaptive gradient
    algorithms", without its change of the betas.
    """
    # The model and the data report values that are none.
    if not all(isinstance(value, int) and value > 0 for value in (d_model, batch_tokens)):
        return 1.0
    return at_128 * 128 / d_model * math.sqrt(batch_tokens / TUNED_TOKENS)


def as_trained() -> dict[str, str]:
    """search=as_trained: the settings of beam search, each as in the run. Not null, which is a value of some."""
    files = [yaml.safe_load((CONF / "search" / f"{name}.yaml").read_text("utf-8")) for name in ("beam", "default")]
    return dict.fromkeys((name for file in files for name in file if name not in ("defaults", "_target_")), AS_TRAINED)


def group_count() -> int:
    """Machines of a torchrun job."""
    return int(os.environ.get("WORLD_SIZE", 1)) // int(os.environ.get("LOCAL_WORLD_SIZE", 1))


def gpus_of_a_task(accelerator: str, devices: Any) -> int:
    """GPUs that a job of a sweep asks of Ray: trainer.devices, and none where it trains on the processor."""
    if accelerator == "cpu" or (accelerator not in ("gpu", "cuda") and not visible_gpus()):
        return 0
    return devices if isinstance(devices, int) and devices > 0 else 1


def register_resolvers() -> None:
    """Register the resolvers, and search=as_trained."""
    ConfigStore.instance().store("as_trained", as_trained(), group="search")
    for once in (run_directory, swept):
        OmegaConf.register_new_resolver(once.__name__, once, replace=True, use_cache=True)
    OmegaConf.register_new_resolver("program", program, replace=True)
    OmegaConf.register_new_resolver("conf", lambda: show(CONF), replace=True)
    OmegaConf.register_new_resolver("twice", lambda number: 2 * number, replace=True)
    for resolver in (sweep_directory, job_directory, peak_rate, group_count, gpus_of_a_task, balanced_feed_forward):
        OmegaConf.register_new_resolver(resolver.__name__, resolver, replace=True)
