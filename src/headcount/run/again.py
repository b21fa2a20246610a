"""The same command again: it resumes the run that it began before, or begins another beside it."""

import itertools
import logging
from pathlib import Path
from typing import NamedTuple

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

from headcount.errors import InputError
from headcount.files import show
from headcount.run.directory import is_finished, read_config
from headcount.run.identity import differences, with_text
from headcount.run.resume import GIVEN_AGAIN, checkpoints, command_line, initial_config
from headcount.run.values import typed, within

logger = logging.getLogger(__name__)

AUTO = "auto"
IF_EXISTS = ("fail", "resume", "new")


class Start(NamedTuple):
    """A training to start. directory: of the run. resume: whether a run there is continued. overrides: of the command
    line, those that act on it. done: whether that run is finished, so that nothing is left to do."""

    directory: Path
    resume: bool
    overrides: list[Override]
    done: bool = False


def start(config: DictConfig, directory: Path) -> Start:
    """The run that a command starts in `directory`, by `resume` and `if_exists`.

    Raises InputError for a directory that holds a run that this command did not begin, or must not continue.
    """
    overrides = command_line()
    if config.if_exists not in IF_EXISTS:
        raise InputError(f"if_exists={typed(config.if_exists)}: must be one of {', '.join(IF_EXISTS)}")
    if not isinstance(config.resume, str | None):
        raise InputError(f"resume={typed(config.resume)}: must be the directory of a run, or {AUTO}")
    if config.resume not in (None, AUTO):
        return Start(directory, True, overrides)
    if not (directory / "config.yaml").exists():
        found = _unfinished(config) if config.resume == AUTO and not _is_named() else None
        return _resumed(found, overrides) if found else Start(directory, False, overrides)
    if config.if_exists == "new":
        return Start(_free(directory), False, overrides)
    if config.if_exists == "fail" and config.resume != AUTO:
        raise InputError(
            f"{show(directory)} holds a run already: resume it with if_exists=resume, begin another beside it with "
            "if_exists=new, or move it away"
        )
    check_same(directory, config, "give another hydra.run.dir=")
    return _resumed(directory, overrides)


def check_same(directory: Path, config: DictConfig, advice: str) -> None:
    """Raises InputError where the run in `directory` is another than the new run of `config`."""
    if what := differences(read_config(directory), with_text(initial_config(config))):
        raise InputError(f"{show(directory)} holds a run of another config ({what}); {advice}")


def _resumed(directory: Path, overrides: list[Override]) -> Start:
    """The run, from its last checkpoint; one that ended before its first checkpoint begins anew."""
    if is_finished(directory):
        return Start(directory, True, overrides, done=True)
    if not checkpoints(directory):
        return Start(directory, False, overrides)
    logger.info("resuming %s", show(directory))
    return Start(directory, True, [each for each in overrides if within(each.key_or_group, (*GIVEN_AGAIN, "threads"))])


def _is_named() -> bool:
    """Whether the command names the directory of the run, as the command of each job of a sweep does."""
    hydra = HydraConfig.get().overrides.hydra if HydraConfig.initialized() else []
    return any(each.startswith("hydra.run.dir=") for each in hydra)


def _unfinished(config: DictConfig) -> Path | None:
    """The newest run in runs/ of the same config that is not finished."""
    folders = [path.parent for path in Path("runs").glob("*/config.yaml") if not path.parent.is_symlink()]
    newest = sorted(folders, key=lambda folder: folder.stat().st_mtime, reverse=True)
    task = with_text(initial_config(config)) if newest else config
    return next((folder for folder in newest if _continues(folder, task)), None)


def _continues(folder: Path, task: DictConfig) -> bool:
    try:
        return not is_finished(folder) and not differences(read_config(folder), task)
    except InputError:  # damaged, so it is no run to continue
        return False


def _free(directory: Path) -> Path:
    """The first of NAME_2, NAME_3, ... that is free."""
    beside = (directory.with_name(f"{directory.name}_{number}") for number in itertools.count(2))
    return next(path for path in beside if not path.exists())
