"""Resume a run with its own config, tokenizer and checkpoint.

What a run learns (`headcount.settings.LEARNT`) cannot change, but for its length and the devices that share a batch.
Every other setting may, and acts; config.yaml then gets an entry in `resumed`: the step after which the new values
hold, and the values before. Nothing here writes: the files of the run change when its checkpoint has loaded.
"""

import contextlib
import logging
import os
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from headcount.command_lines import command, hydra_text, shell_word
from headcount.errors import InputError, first_line
from headcount.files import show
from headcount.run.build import command_line, initial_config
from headcount.run.directory import is_finished, locked, read_config
from headcount.run.identity import differences, differing, settings_of, with_text
from headcount.settings import PLACES, is_learnt, within
from headcount.training.checkpoint import check_checkpoint, read_checkpoint

AUTO = "auto"
BATCH = ("trainer.devices", "trainer.num_nodes", "trainer.accumulate_grad_batches")  # their product must stay
LENGTH = ("steps",)
# Settings of a new run, which one that is resumed has no use for.
NEW_RUN = ("recipe", "study", "prepare", "report", "name", "init_from")
DEVICES = ("accelerator", "devices", "num_nodes", "strategy")  # settings of trainer that a file of conf/trainer chooses

logger = logging.getLogger(__name__)


class Start(NamedTuple):
    """A training to start. directory: of the run. resume: whether a run there is continued. done: whether that run is
    finished, so that nothing is left to do."""

    directory: Path
    resume: bool
    done: bool = False


@dataclass
class Resumed:
    """A run to continue.

    config: its own, with the settings that change. checkpoint: its full state after optimizer step `step`. notes: lines
    for the log.
    """

    directory: Path
    config: DictConfig
    checkpoint: Path
    step: int
    notes: list[str]

    def check_text(self, fingerprint: str) -> None:
        """Raises InputError where the corpus is another than that of the run."""
        if self.config.data.fingerprint != fingerprint:
            raise InputError(
                f"resume={show(self.directory)}: the text of its corpus has changed since it began; give that text, or "
                f"train its weights on this one: {weights_of(self.directory)}"
            )

    def misfit(self, error: Exception) -> InputError:
        """The error where Lightning could not load the checkpoint, such as optimizer state of an earlier version."""
        return InputError(
            f"{show(self.checkpoint)}: its state does not fit {show(self.directory)}/config.yaml "
            f"({first_line(error)}); to train its weights on, give {weights_of(self.directory)}"
        )


def weights_of(directory: Path) -> str:
    """The setting that starts a new run with the weights of this one, as one types it."""
    return shell_word(f"init_from={hydra_text(show(directory))}")


def start(config: DictConfig, directory: Path) -> Start:
    """The run that a command starts in `directory`, by its setting `resume`.

    Raises InputError for a directory that holds a run that this command did not begin, or must not continue.
    """
    if config.resume not in (None, AUTO):
        return Start(directory, True)
    if not (directory / "config.yaml").exists():
        found = _unfinished(config) if config.resume == AUTO and not _is_named() else None
        return _continued(found) if found else Start(directory, False)
    if config.resume != AUTO:
        raise InputError(f"{show(directory)} holds a run already: continue it with resume=auto, or move it away")
    check_same(directory, config, "give another hydra.run.dir=")
    return _continued(directory)


def check_same(directory: Path, config: DictConfig, advice: str) -> None:
    """Raises InputError where the run in `directory` is another than the new run of `config`."""
    if what := differences(read_config(directory), with_text(initial_config(config))):
        raise InputError(f"{show(directory)} holds a run of another config ({what}); {advice}")


def _continued(directory: Path) -> Start:
    """The run, from its last checkpoint; one that ended before its first checkpoint begins anew."""
    if is_finished(directory):
        return Start(directory, True, done=True)
    if checkpoints(directory):
        logger.info("resuming %s", show(directory))
    return Start(directory, bool(checkpoints(directory)))


def _is_named() -> bool:
    """Whether the command names the directory of the run, as the command of each job of a sweep does."""
    hydra = HydraConfig.get().overrides.hydra if HydraConfig.initialized() else []
    return any(each.startswith("hydra.run.dir=") for each in hydra)


def _unfinished(config: DictConfig) -> Path | None:
    """The newest run in runs/ of the same identity that is not finished."""
    folders = [path.parent for path in Path("runs").glob("*/config.yaml") if not path.parent.is_symlink()]
    newest = sorted(folders, key=lambda folder: folder.stat().st_mtime, reverse=True)
    task = with_text(initial_config(config)) if newest else config
    for folder in newest:
        with contextlib.suppress(InputError):  # damaged, so it is no run to continue
            if not is_finished(folder) and not differences(read_config(folder), task):
                return folder
    return None


def open_resumed(given: DictConfig, place: Path, held: contextlib.ExitStack) -> Resumed:
    """The run to resume, with the settings of the command line; its directory is locked in `held`.

    given: the config that the command line would give a new run. place: the directory of this command.
    Raises InputError for a directory that is not a run, a setting that cannot change, a run without a readable
    checkpoint, or one with nothing left to do.
    """
    directory = place if given.resume in (None, AUTO) else Path(given.resume)
    before = read_config(directory)
    if place.resolve() != directory.resolve():
        raise InputError(f"hydra.run.dir={place}: resume={directory} has its own directory; leave it out")
    if int(os.environ.get("RANK", 0)) == 0:
        held.enter_context(locked(directory))
    config = changed(before, given, directory)
    checkpoint, step, notes = newest_checkpoint(directory)
    steps = config.steps if isinstance(config.steps, int) else step  # another is reported by its type
    if step > steps or (step == steps and is_finished(directory)):
        raise InputError(
            f"{show(checkpoint)} is at step {step} of steps={config.steps}: to train on, raise steps; to score it: "
            f"{command('evaluate', run=show(directory))}"
        )
    record_changes(before, config, step)
    return Resumed(directory, config, checkpoint, step, notes)


def changed(before: DictConfig, given: DictConfig, directory: Path) -> DictConfig:
    """The config of a run with the settings typed. Raises InputError, one line, for those that cannot change. Where the
    command that began the run is typed again, these are as they were."""
    config, refused = before.copy(), []
    again = given.resume in (None, AUTO)
    for override in sorted(command_line(), key=lambda each: "." in each.key_or_group):  # groups before their settings
        name = override.key_or_group
        if name == "trainer":
            config.trainer.update({each: given.trainer[each] for each in DEVICES})
        elif name == "resume":
            continue
        elif within(name, NEW_RUN):
            refused += [] if again else [name]
        elif not is_learnt(name) or name in LENGTH or name in BATCH:
            OmegaConf.update(config, name, OmegaConf.select(given, name), merge=False, force_add=True)
        elif name in PLACES and OmegaConf.select(before, name, default=...) is not ...:
            OmegaConf.update(config, name, override.value())
        elif not again:
            refused.append(name)
    if refused:
        raise InputError(
            f"{', '.join(refused)}: resume={show(directory)} resumes that run as it was begun, and this cannot "
            f"change; to train its weights with other settings, give {weights_of(directory)}"
        )
    check_batch(before, config)
    return config


def check_batch(before: DictConfig, config: DictConfig) -> None:
    """Raises InputError where other devices would make another batch of each step, and other steps of each epoch."""
    one, other = ([OmegaConf.select(each, name) for name in BATCH] for each in (before, config))
    whole = all(isinstance(number, int) for number in (*one, *other))
    if one != other and not (whole and prod(one) == prod(other)):
        names = " x ".join(name.removeprefix("trainer.") for name in BATCH)
        raise InputError(
            f"trainer: {names} was {' x '.join(map(str, one))} and would be {' x '.join(map(str, other))}; a run that "
            "is resumed must keep the product, which makes its batches (accumulate more on fewer devices)"
        )


def checkpoints(directory: Path) -> list[Path]:
    """The checkpoints of a run, the newest first. One killed between two renames has only the one before the last."""
    folder = directory / "checkpoints"
    return [path for path in (folder / "last.ckpt", folder / "last-1.ckpt") if path.is_file()]


def newest_checkpoint(directory: Path) -> tuple[Path, int, list[str]]:
    """The newest checkpoint that can be read, its optimizer step, and a note of one that cannot.

    Raises InputError where there is none, OSError for one that cannot be read at the moment.
    """
    damaged: list[str] = []
    for path in checkpoints(directory):
        try:
            check_checkpoint(path)
            step = int(read_checkpoint(path)["global_step"])
        except (OSError, MemoryError):  # it may be whole: to go back to the one before would lose it
            raise
        except Exception as error:  # of many classes, where bytes are not what they claim to be
            damaged.append(f"{show(path)} is damaged ({first_line(error)})")
        else:
            return path, step, [f"{note}; resumed from {show(path)}, step {step}" for note in damaged]
    what = "; ".join(damaged) or f"{show(directory / 'checkpoints' / 'last.ckpt')}: no such file"
    raise InputError(f"{what}: there is nothing to resume from; start anew without resume=")


def keep_as_last(checkpoint: Path) -> None:
    """Where the run is resumed from the checkpoint before the last, which was damaged, let it be the last."""
    if checkpoint.name != "last.ckpt":
        checkpoint.replace(checkpoint.with_name("last.ckpt"))


def record_changes(before: DictConfig, config: DictConfig, step: int) -> None:
    """Note in `config` the values of what is learnt until `step`, where they are others now."""
    were, are = settings_of(before), settings_of(config)
    other: dict[str, Any] = {name: were.get(name) for name in differing(were, are) if not within(name, PLACES)}
    if other:
        entry = {"after_step": step, "before": other}
        OmegaConf.update(config, "resumed", [*config.get("resumed", []), entry], force_add=True)
