"""Resume a run with its own config, tokenizer and checkpoint; and start a run with the weights of another.

What a run learns (`headcount.settings.LEARNT`) cannot change, but for its length and the devices that share a batch.
Every other setting may, and acts; config.yaml then gets an entry in `resumed`: the step after which the new values
hold, and the values before. Nothing here writes: the files of the run change when its checkpoint has loaded.
"""

import logging
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from headcount.command_lines import command, word
from headcount.errors import InputError, first_line
from headcount.files import show
from headcount.run.build import command_line, names_given, plain, without_other_kinds
from headcount.run.directory import is_finished, read_config
from headcount.run.identity import differences, recorded, settings_of, with_text
from headcount.settings import PLACES, build, flatten, is_learnt, typed, within
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
    for the log. moved: whether the command line names another place for its text.
    """

    directory: Path
    config: DictConfig
    checkpoint: Path
    step: int
    notes: list[str]
    moved: bool

    def check_text(self, fingerprint: str) -> None:
        """Compare the corpus as it is now with that of the run. Raises InputError where it is another, or where it
        lies elsewhere and the run has not recorded which it was."""
        before = recorded(self.config)
        if before is None and not self.moved:
            self.notes.append("this run did not record which text it was begun with; the text of now is taken for it")
        elif before != fingerprint:
            what = "is not recorded in it" if before is None else "has changed since it began"
            raise InputError(
                f"resume={show(self.directory)}: the text of its corpus {what}; give the text that it began with, or "
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
    return word("init_from", show(directory))


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

    def continues(folder: Path) -> bool:
        try:
            return not is_finished(folder) and not differences(read_config(folder), task)
        except InputError:  # damaged, so it is no run to continue
            return False

    return next(filter(continues, newest), None)


def open_resumed(directory: Path, given: DictConfig) -> Resumed:
    """The run in `directory`, with the settings of the command line.

    given: the config that the command line would give a new run.
    Raises InputError for a directory that is not a run, a setting that cannot change, a run without a readable
    checkpoint, or one with nothing left to do.
    """
    before = read_config(directory)
    config = changed(before, given, directory)
    checkpoint, step, notes = newest_checkpoint(directory)
    finished = is_finished(directory)
    if step > config.steps or (step == config.steps and finished):
        where = f"{step} of {step}" if step == config.steps else f"{step}, and steps={config.steps} is below"
        raise InputError(
            f"{show(checkpoint)} is at step {where}: to train on, raise steps; to score it: "
            f"{command('evaluate', run=show(directory))}"
        )
    notes += planned_anew(before, config, step)
    record_changes(before, config, step)
    moved = any(OmegaConf.select(before, name) != OmegaConf.select(config, name) for name in PLACES)
    return Resumed(directory, config, checkpoint, step, notes, moved)


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
    paths = checkpoints(directory)
    if not paths:
        raise InputError(
            f"{show(directory / 'checkpoints' / 'last.ckpt')}: no such file, so there is nothing to resume; start anew "
            "without resume="
        )
    damaged = []
    for path in paths:
        try:
            check_checkpoint(path)
            step = int(read_checkpoint(path)["global_step"])
        except (OSError, MemoryError):  # it may be whole: to go back to the one before would lose it
            raise
        except Exception as error:  # of many classes, where bytes are not what they claim to be
            damaged.append(f"{show(path)} is damaged ({first_line(error)})")
        else:
            return path, step, [f"{note}; resumed from {show(path)}, step {step}" for note in damaged]
    raise InputError(f"{'; '.join(damaged)}; there is no other to resume from: start anew without resume=")


def keep_as_last(checkpoint: Path) -> None:
    """Where the run is resumed from the checkpoint before the last, which was damaged, let it be the last."""
    if checkpoint.name != "last.ckpt":
        checkpoint.replace(checkpoint.with_name("last.ckpt"))


def planned_anew(before: DictConfig, config: DictConfig, step: int) -> list[str]:
    """A note where the schedule ends at the last step, and that is another now."""
    if config.steps == before.steps or "final" not in config.schedule:
        return []
    rates = [
        build("schedule", plain(each.schedule), steps=each.steps)(step) * config.optimizer.get("lr", 1)
        for each in (before, config)
    ]
    return [
        f"the schedule was planned for {before.steps} steps and is now planned for {config.steps}: after step "
        f"{step} the learning rate is {rates[1]:.3g}, where it would have been {rates[0]:.3g}"
    ]


def record_changes(before: DictConfig, config: DictConfig, step: int) -> None:
    """Note in `config` the values of what is learnt until `step`, where they are others now."""
    were, are = settings_of(before), settings_of(config)
    other: dict[str, Any] = {name: were.get(name) for name in sorted(were | are) if were.get(name) != are.get(name)}
    other = {name: value for name, value in other.items() if not within(name, PLACES)}
    if other:
        entry = {"after_step": step, "before": other}
        OmegaConf.update(config, "resumed", [*config.get("resumed", []), entry], force_add=True)


def initial_config(config: DictConfig, wrong: list[str] | None = None) -> DictConfig:
    """The config of a new run, whose groups have the settings of their kinds; with `init_from`, that run's model and
    tokenizer, and on top of them what the command line, a recipe or a config of one's own sets of the model.

    Raises InputError for a directory that is not a run, a setting without effect, or a choice that another model or
    tokenizer would need.
    """
    words = names_given()
    if not config.init_from:
        return without_other_kinds(config, words, wrong)
    directory = Path(config.init_from)
    run = read_config(directory)
    own = [each for each in words if within(each, ("tokenizer",)) or each == "model"]
    if own:
        raise InputError(f"{own[0]}=: init_from={directory} brings its own model and tokenizer; leave it out")
    chosen = None
    if HydraConfig.initialized():
        initial, chosen = _composed_on(run.model), HydraConfig.get().runtime.choices.get("model")
    else:
        initial = config.copy()
        initial.model = run.model
    initial.tokenizer = run.tokenizer
    wanted = without_other_kinds(config, words, []).model
    initial = without_other_kinds(initial, words, wrong)
    other = [name for name in wanted if wanted[name] != initial.model.get(name)]
    if other and (chosen not in (None, _default_model()) or _is_own("model", chosen) or _is_own(".", "train")):
        raise InputError(
            f"model={chosen}: init_from={directory} brings its own model, with another {other[0]}; leave out the "
            "recipe, study or config that chooses it, and give its settings one by one"
        )
    return initial


def _composed_on(model: DictConfig) -> DictConfig:
    """The config of this command where `model` is the option of the group model: what a recipe sets comes on top."""
    hydra = HydraConfig.get()
    ConfigStore.instance().store("of_init_from", plain(model), group="model")
    words = [*hydra.overrides.task, "model=of_init_from"]
    loader = GlobalHydra.instance().config_loader()
    config = loader.load_configuration(hydra.job.config_name, words, RunMode.RUN)
    OmegaConf.set_struct(config, False)
    config.pop("hydra")
    return config


def _is_own(group: str, option: str | None) -> bool:
    """Whether an option is a file of the user's own folder of configs, --config-dir."""
    folders = [Path(each.path) for each in HydraConfig.get().runtime.config_sources if each.provider == "command-line"]
    return any((folder / group / f"{option}.yaml").is_file() for folder in folders)


def _default_model() -> str:
    """The model that `train` has where nobody chooses one."""
    loader = GlobalHydra.instance().config_loader()
    default: str = loader.load_configuration("train", [], RunMode.RUN).hydra.runtime.choices["model"]
    return default


def other_settings(config: DictConfig, directory: Path) -> list[str]:
    """A line for each setting of the model in `config` with which the weights of the run in `directory` were not
    trained; dropout aside, which changes no weight and no translation."""
    before, now = (flatten({"model": plain(each.model)}) for each in (read_config(directory), config))
    return [
        f"{name}={typed(now.get(name))}: the weights of {show(directory)} were trained with {typed(before.get(name))}"
        for name in sorted(before | now)
        if before.get(name) != now.get(name) and not name.endswith("dropout")
    ]
