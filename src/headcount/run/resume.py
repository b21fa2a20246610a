"""Resume: continue a run with its own config, tokenizer and checkpoint.

A short list of settings may change (`SETTINGS` and the constants below it), and each of them acts. Every other one is
refused, with a pointer to `init_from`. Where a change matters to what is learnt, config.yaml gets an entry in
`resumed`: the step after which the new values hold, and the values before. Nothing here writes: the files of the run
change when its checkpoint has loaded (`headcount.run.training_run`).
"""

from collections.abc import Collection
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import yaml
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from headcount.errors import InputError, first_line
from headcount.files import show
from headcount.run.aliases import with_added_settings
from headcount.run.config import build
from headcount.run.directory import is_finished, read_config
from headcount.run.identity import recorded, settings_that_matter
from headcount.run.place import command, word
from headcount.run.trusted import check_targets
from headcount.run.values import fits, flatten, typed, within
from headcount.training.seal import check_seal, read_checkpoint

STOP_AFTER = "divergence.stop_after"
VALIDATION = tuple(f"validation.{name}" for name in ("every", "samples", "patience", "metric"))
CHECKPOINTS = ("checkpoint.every", "checkpoint.every_minutes")
MACHINE = ("threads", "data.workers", "data.directory", "cuda_graphs")
SETTINGS = ("trainer.max_steps", *MACHINE, STOP_AFTER, *VALIDATION, *CHECKPOINTS)
GROUPS = ("logger", "search")  # to exchange, or to change within
DEVICES = tuple(f"trainer.{name}" for name in ("accelerator", "devices", "num_nodes", "strategy"))
BATCH = ("trainer.devices", "trainer.num_nodes", "trainer.accumulate_grad_batches")  # their product must stay
# Where the text lies; it must be the same text.
FILES = ("root", *(f"{split}{side}" for split in ("train", "valid", "test") for side in ("", "_source", "_target")))
TEXTS = tuple(f"data.{name}" for name in FILES)
NOT_OF_THE_RUN = ("resume", "if_exists", "debug", "trust")
# Settings that a run gets anew where the same command resumes it, such as the place of its text.
GIVEN_AGAIN = ("trust", "debug", "logger", "data.directory", "data.workers", STOP_AFTER, *CHECKPOINTS, *TEXTS)
TRAINING = ("checkpoint", "logger", "loss", "optimizer", "schedule", "trainer", "validation")  # groups of any run
ELSEWHERE = tuple(f"pytorch_lightning.loggers.{name}Logger" for name in ("MLFlow", "Wandb"))
INSTEAD = {
    "data.budget.steps": "trainer.max_steps",
    "schedule.steps": "trainer.max_steps",
    "data.budget.validate_every": "validation.every",
}


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


def open_resumed(directory: Path, given: DictConfig, overrides: list[Override], trust: Collection[str]) -> Resumed:
    """The run in `directory`, with the settings of the command line.

    given: the config that the command line would give a new run. overrides: of the command line. trust: classes that
    the run's config may build beside headcount's own.
    Raises InputError for a directory that is not a run, a config that would build an untrusted class, a setting that
    cannot change, a run without a readable checkpoint, or one with nothing left to do.
    """
    before = read_config(directory)
    if wrong := [name for name in TRAINING if not OmegaConf.is_dict(before.get(name))]:
        raise InputError(
            f"{directory / 'config.yaml'}: {', '.join(wrong)}: must be groups of settings, as training has"
        )
    check_targets(OmegaConf.to_container(before), "", trust, f"{directory}: ")
    config = changed(before, given, overrides, directory)
    if "logger" not in [override.key_or_group for override in overrides]:
        check_loggers(config, trust, directory)
    if not fits(config.trainer.max_steps, int):
        raise InputError(f"trainer.max_steps={config.trainer.max_steps}: must be a whole number")
    checkpoint, step, notes = newest_checkpoint(directory)
    finished = is_finished(directory)
    if step > config.trainer.max_steps or (step == config.trainer.max_steps and finished):
        most = config.trainer.max_steps
        where = f"{step} of {most}" if step == most else f"{step}, and trainer.max_steps={most} is below"
        raise InputError(
            f"{show(checkpoint)} is at step {where}: to train on, raise trainer.max_steps; to score it: "
            f"{command('evaluate', run=show(directory))}"
        )
    notes += move_end_of_schedule(before, config, step)
    record_changes(before, config, step)
    moved = any(OmegaConf.select(before, name) != OmegaConf.select(config, name) for name in TEXTS)
    return Resumed(directory, config, checkpoint, step, notes, moved)


def check_loggers(config: DictConfig, trust: Collection[str], directory: Path) -> None:
    """Raises InputError for a logger of the run's config that writes elsewhere than into the run: nobody typed it."""
    for name, node in config.logger.items():
        target = node.get("_target_") if OmegaConf.is_dict(node) else None  # others are refused where they are built
        if target in ELSEWHERE and target not in trust:
            raise InputError(
                f"{show(directory)}: logger.{name}: writes elsewhere than into the run, so it is not taken from its "
                f"config; give it again, such as logger={name}, or another: logger=csv"
            )


def changed(before: DictConfig, given: DictConfig, overrides: list[Override], directory: Path) -> DictConfig:
    """The config of a run with the settings typed. Raises InputError, one line, for those that cannot change."""
    config, refused = before.copy(), []
    for override in sorted(overrides, key=lambda each: "." in each.key_or_group):  # groups before their settings
        name = override.key_or_group
        if name in GROUPS:
            config[name] = OmegaConf.to_container(given[name], resolve=True)
        elif name == "trainer":
            for each in DEVICES:
                OmegaConf.update(config, each, OmegaConf.select(given, each), merge=False, force_add=True)
        elif override.is_delete() and within(name, GROUPS):
            group, _, setting = name.partition(".")
            del config[group][setting]
        elif name in SETTINGS or name in BATCH or within(name, GROUPS) or name in DEVICES:
            OmegaConf.update(config, name, override.value(), merge=False, force_add=True)
        elif name in TEXTS and OmegaConf.select(before, name, default=...) is not ...:
            OmegaConf.update(config, name, override.value())
        elif name not in NOT_OF_THE_RUN:
            refused.append(f"{name} (give {INSTEAD[name]})" if name in INSTEAD else name)
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
            step = step_of(path)
        except (OSError, MemoryError):  # it may be whole: to go back to the one before would lose it
            raise
        except Exception as error:  # of many classes, where bytes are not what they claim to be
            damaged.append(f"{show(path)} is damaged ({first_line(error)})")
        else:
            return path, step, [f"{note}; resumed from {show(path)}, step {step}" for note in damaged]
    raise InputError(f"{'; '.join(damaged)}; there is no other to resume from: start anew without resume=")


def step_of(checkpoint: Path) -> int:
    """The optimizer step of a checkpoint, every byte of it checked. Raises one of many errors where it is damaged."""
    check_seal(checkpoint)
    step = read_checkpoint(checkpoint)["global_step"]
    if not fits(step, int) or step < 0:
        raise ValueError("its step is no whole number from 0 on")
    return int(step)


def keep_as_last(checkpoint: Path) -> None:
    """Where the run is resumed from the checkpoint before the last, which was damaged, let it be the last."""
    if checkpoint.name != "last.ckpt":
        checkpoint.replace(checkpoint.with_name("last.ckpt"))


def move_end_of_schedule(before: DictConfig, config: DictConfig, step: int) -> list[str]:
    """Plan a schedule anew to the end of the run if it ended with the run, or would end before it; a note of that.

    Steps after its end would have a rate of 0.
    """
    ends = OmegaConf.select(before, "schedule.steps")
    if ends in (None, config.trainer.max_steps):
        return []
    if ends > config.trainer.max_steps and ends != before.trainer.max_steps:
        return []
    config.schedule.steps = config.trainer.max_steps
    then, now = (build(each.schedule, "schedule")(step) * config.optimizer.get("lr", 1) for each in (before, config))
    return [
        f"the schedule was planned for {ends} steps and is now planned for {config.trainer.max_steps}: after step "
        f"{step} the learning rate is {now:.3g}, where it would have been {then:.3g}"
    ]


def record_changes(before: DictConfig, config: DictConfig, step: int) -> None:
    """Note in `config` the values that mattered until `step`, where they are others now."""
    were, are = settings_that_matter(before), settings_that_matter(config)
    other: dict[str, Any] = {name: were.get(name) for name in sorted(were | are) if were.get(name) != are.get(name)}
    if other:
        entry = {"after_step": step, "before": other}
        OmegaConf.update(config, "resumed", [*config.get("resumed", []), entry], force_add=True)


def initial_config(config: DictConfig) -> DictConfig:
    """The config of a new run: `config`; with `init_from`, that run's model and tokenizer, and on top of
    them the single settings of the model given on the command line.

    Raises InputError for a directory that is not a run, a config that would build an untrusted class, or an override
    that another model or tokenizer would need.
    """
    if not config.init_from:
        return config
    directory = Path(config.init_from)
    run = read_config(directory)
    check_targets(OmegaConf.to_container(run), "", config.trust, f"{directory}: ")
    initial = config.copy()
    initial.model, initial.tokenizer = run.model, run.tokenizer
    initial.data.vocab_size = run.tokenizer.get("vocab_size")
    for override in command_line():
        part, _, setting = override.key_or_group.partition(".")
        whole = part.partition("/")[0] in ("model", "tokenizer") and not setting  # an option, not a single setting
        if whole or part == "tokenizer" or override.key_or_group == "data.vocab_size":
            raise InputError(
                f"{override.input_line}: init_from={directory} brings its own model and tokenizer; leave it out"
            )
        if part == "model":
            OmegaConf.update(initial.model, setting, override.value(), force_add=True)
    check_choices(config, initial, directory)
    return initial


def check_choices(config: DictConfig, initial: DictConfig, directory: Path) -> None:
    """Raises InputError for a recipe or a study whose settings of the model are not those of `initial`, which has the
    model of the run in `directory`."""
    chosen, taken = settings_of_model(config), settings_of_model(initial)
    hydra = HydraConfig.get()
    for group in ("recipe", "study", "study/arm", "."):  # and the settings of the command, which may be one's own
        option = hydra.runtime.choices.get(group) if group != "." else hydra.job.config_name
        named = _settings_named(group, option) if option else []
        other = [name for name in taken | chosen if within(name, named) and taken.get(name) != chosen.get(name)]
        if other:
            add = " ".join(f"{name}={typed(taken.get(name))}" for name in other)
            raise InputError(
                f"{group}={option}: init_from={directory} brings its own model, with other settings; leave it out"
                + ("" if "model._target_" in other else f", or add {add}")
            )


def settings_of_model(config: DictConfig) -> dict[str, Any]:
    """The settings of a config's model, by dotted name."""
    return flatten({"model": with_added_settings(OmegaConf.to_container(config.model, resolve=True))})


def other_settings(config: DictConfig, directory: Path) -> list[str]:
    """A line for each setting of the model in `config` with which the weights of the run in `directory` were not
    trained; dropout aside, which changes no weight and no translation."""
    before, now = settings_of_model(read_config(directory)), settings_of_model(config)
    return [
        f"{name}={typed(now.get(name))}: the weights of {show(directory)} were trained with {typed(before.get(name))}"
        for name in sorted(before | now)
        if before.get(name) != now.get(name) and not name.endswith("dropout")
    ]


def _settings_named(group: str, option: str) -> list[str]:
    """The settings and groups of the model that an option names, or another that it is made of; of several files, in
    one's own configs and in conf/, the first."""
    folders = [Path(each.path) for each in HydraConfig.get().runtime.config_sources if each.schema == "file"]
    path = next((each for folder in folders if (each := folder / group / f"{option}.yaml").is_file()), None)
    content = yaml.safe_load(path.read_text("utf-8")) if path else {}
    named = list(flatten(content.get("model", {}), "model."))
    for default in content.get("defaults", []):
        if isinstance(default, str):
            named += _settings_named(group, default) if default != "_self_" else []
        else:
            named += [key.removeprefix("override /").replace("/", ".") for key in default if "/model" in key]
    return named


def command_line() -> list[Override]:
    """The overrides that this script was started with; none where `train` is called with a config that was composed."""
    if not HydraConfig.initialized():
        return []
    return OverridesParser.create().parse_overrides(list(HydraConfig.get().overrides.task))
