"""OmegaConf resolvers: the functions of conf/ between ${ and }, beside Hydra's own."""

import contextlib
import functools
import hashlib
import itertools
import math
import os
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from headcount.command_lines import CONF
from headcount.settings import AS_TRAINED, PLACES, is_learnt, named_by, within

TUNED_TOKENS = 4096  # data.batch_tokens that the rates in conf/optimizer count as being for; they were found with 2,048


def run_directory(resume: str | None) -> str:
    """The directory of a single run: that of the run to resume, or a new one named after the time."""
    if resume and resume != "auto":
        known = isinstance(resume, str) and Path(resume).is_dir()  # `train` reports others
        return str(Path(resume).resolve()) if known else "."
    if int(os.environ.get("RANK", 0)) > 0:
        return "."  # the first process chooses: see `shared_directory`
    first = f"runs/{datetime.now():%Y-%m-%d_%H-%M-%S}"
    for name in itertools.chain([first], (f"{first}_{number}" for number in itertools.count(2))):
        with contextlib.suppress(FileExistsError):
            Path(name).mkdir(parents=True)  # taken at once: of two runs started in the same second, each gets its own
            break
    return name


def swept(overrides: Iterable[str], params: Mapping[str, Any] | None) -> list[str]:
    """Names of the settings to which a sweep's command line, or its sweeper's `params`, gives several values.

    The config of one job has only its own values, so this is resolved once, in the whole sweep's config, and Hydra
    gives the cached result to every job.
    """
    words = [*overrides, *(f"{name}={value}" for name, value in (params or {}).items())]
    parsed = OverridesParser.create().parse_overrides(words)
    return [override.get_key_element() for override in parsed if override.is_sweep_override()]


def job_directory(overrides: Collection[str], swept: Collection[str] = ()) -> str:
    """The folder of one job, named after what it changes in what a run learns.

    swept: the settings that have several values; these are always in the name.
    """

    def belongs(override: str) -> bool:
        name = named_by(override)
        return (
            override.partition("=")[0] in swept or name == "study.arm" or (is_learnt(name) and not within(name, PLACES))
        )

    full = ",".join(each for each in sorted(overrides) if belongs(each)) or "as_it_is"
    name = full.replace("/", "_")
    end = name.encode()
    if len(end) <= 200 and name == full:
        return name
    # File systems take 255 bytes, and no path in a name. A digest keeps folders apart; the end of a name, with the
    # seed, tells a reader more than its beginning.
    digest = hashlib.sha256(full.encode()).hexdigest()[:8]
    return f"{digest},{name}" if len(end) <= 200 else f"{digest},...{end[-180:].decode(errors='ignore')}"


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


def processes(of_a_machine: bool) -> int:
    """Processes that torchrun started on each machine, or the number of machines."""
    world, local = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    return local if of_a_machine else world // local


def balanced_feed_forward(*arguments: Any) -> int:
    """`headcount.model.feed_forward.balanced_feed_forward`, imported when a config asks for it: torch takes seconds."""
    from headcount.model.feed_forward import balanced_feed_forward

    return balanced_feed_forward(*arguments)


def by_pairs(train: Any, most: int | None, values: Mapping[int, Any]) -> Any:
    """The value for as many pairs as the files of data.train have lines, or `most`: that of the largest number of pairs
    in `values`, from 0, that is no larger."""
    pairs = _pairs_in(yaml.safe_dump(OmegaConf.to_object(train) if OmegaConf.is_config(train) else train))
    if isinstance(most, int) and most > 0:  # the corpus reports values that are none
        pairs = min(pairs, most)
    return values[max(least for least in values if least <= pairs)]


@functools.cache  # several settings ask for it
def _pairs_in(train: str) -> int:
    from headcount.data.corpora.files import pairs_in  # pyarrow and datasets take a second

    return pairs_in(yaml.safe_load(train))


def register_resolvers() -> None:
    """Register the resolvers, and the launcher of sweeps."""
    for once in (run_directory, swept):
        OmegaConf.register_new_resolver(once.__name__, once, replace=True, use_cache=True)
    for resolver in (job_directory, peak_rate, processes, balanced_feed_forward, by_pairs):
        OmegaConf.register_new_resolver(resolver.__name__, resolver, replace=True)
    launcher = {"_target_": "hydra_plugins.headcount_processes.Processes", "n_jobs": 1}
    ConfigStore.instance().store("processes", launcher, group="hydra/launcher", provider="headcount")
    # A sweep is named after its recipe, or its corpus.
    folder = lambda name, recipe, data: f"runs/{name}_{recipe or data}"  # noqa: E731
    OmegaConf.register_new_resolver("sweep_directory", folder, replace=True)
    beam = yaml.safe_load((CONF / "search" / "beam.yaml").read_text(encoding="utf-8"))
    ConfigStore.instance().store(AS_TRAINED, dict.fromkeys(beam, AS_TRAINED), group="search", provider="headcount")
    OmegaConf.register_new_resolver("of_kind", lambda kind, values: values.get(kind), replace=True)
    OmegaConf.register_new_resolver("twice", lambda number: 2 * number, replace=True)
