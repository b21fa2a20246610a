"""The runs of a directory: which are finished, what each measured, and which belong together as a row."""

import csv
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from headcount.errors import InputError
from headcount.run.directory import read_metrics
from headcount.run.identity import NO_MATTER, PLACES

ASIDE = NO_MATTER | PLACES | {"seed"}  # settings that make no row
STUDY = "study"
PLAN = "sweep.json"
LONGEST = 40  # characters of the name of a row

Config = dict[str, Any]


@dataclass(frozen=True)
class Study:
    """What a sweep is about, as its config says; without such a node, everything is None or empty."""

    title: str | None = None
    varies: str | None = None
    label: str | None = None
    constant: tuple[str, ...] = ()
    about: str | None = None
    published: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unfinished:
    """A job without final figures, and what is known of why."""

    name: str
    why: str


@dataclass(frozen=True)
class RunResult:
    """A finished run. curves: steps and values of each column of its log. hypotheses, references: the lines of each
    held-out split, such as valid and test, that has such a file."""

    name: str
    directory: Path
    config: Config
    metrics: dict[str, Any]
    curves: Mapping[str, Sequence[tuple[int, float]]]
    hypotheses: Mapping[str, Sequence[str]]
    references: Mapping[str, Sequence[str]]

    @property
    def seed(self) -> int:
        return int(self.metrics["seed"])

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The config as one name a value, without what makes no row."""
        return {
            name: value
            for name, value in flatten(self.config).items()
            if not any(name == aside or name.startswith(f"{aside}.") for aside in (*ASIDE, STUDY))
        }

    def figure(self, path: str) -> Any:
        """What metrics.json has at a path such as test.bleu; None if it hasn't."""
        return at(self.metrics, path)


@dataclass(frozen=True)
class Row:
    """Runs that differ in their seed alone. label: for tables. value: of the setting that varies, if there is one."""

    label: str
    value: Any
    runs: tuple[RunResult, ...]

    def figures(self, path: str) -> list[float]:
        """A figure of every run that has it, as a finite number."""
        found = [run.figure(path) for run in self.runs]
        return [float(value) for value in found if finite(value)]


@dataclass(frozen=True)
class Sweep:
    """A directory of runs, read.

    overrides: what was typed to begin it, if that is known. jobs: how many there should be. differing: the settings in
    which finished runs differ. references: of each held-out split, from whatever run has them. notes: what a reader
    must know.
    """

    directory: Path
    overrides: tuple[str, ...]
    jobs: int
    study: Study
    rows: tuple[Row, ...]
    unfinished: tuple[Unfinished, ...]
    differing: tuple[str, ...]
    references: Mapping[str, Sequence[str]]
    notes: tuple[str, ...]

    @property
    def runs(self) -> list[RunResult]:
        return [run for row in self.rows for run in row.runs]

    @property
    def numeric(self) -> bool:
        """Whether the rows are positive numbers, to be put on an axis."""
        return all(
            isinstance(row.value, int | float) and not isinstance(row.value, bool) and row.value > 0
            for row in self.rows
        )

    @property
    def shared(self) -> Config:
        """The settings that all finished runs share."""
        first = self.runs[0].settings
        return {name: value for name, value in first.items() if name not in self.differing}


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested names as one, with dots: {"a": {"b": 1}} as {"a.b": 1}. Lists are values."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def at(tree: Any, path: str) -> Any:
    """The value at a path with dots, None where there is none."""
    for name in path.split("."):
        if not isinstance(tree, Mapping) or name not in tree:
            return None
        tree = tree[name]
    return tree


def finite(value: Any) -> bool:
    """Whether it is a number that can be reckoned with."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def read_sweep(directory: Path) -> Sweep:
    """All there is in a directory of runs. Raises InputError where there is no finished run, a file is damaged, or runs
    were tested on different text."""
    if not directory.is_dir():
        raise InputError(f"sweep={directory}: no such directory; give one that holds a directory for each run")
    overrides, jobs = _planned(directory)
    if not jobs:
        raise InputError(
            f"sweep={directory}: holds no run (a folder with a config.yaml); give the directory of a sweep"
        )
    runs: list[RunResult] = []
    unfinished: list[Unfinished] = []
    for name in jobs:
        found = _read_run(name, directory / name)
        if isinstance(found, RunResult):
            runs.append(found)
        else:
            unfinished.append(found)
    if not runs:
        raise InputError(
            f"sweep={directory}: none of its {len(jobs)} runs is finished yet; "
            f"{unfinished[0].name}: {unfinished[0].why}"
        )
    references = _check_same_test(runs)
    study = _study(runs[0])
    notes: list[str] = []
    if any(_study(run) != study for run in runs):
        notes.append(f"The runs don't all name the same study; this is told as {runs[0].name} has it.")
    differing = _differing(runs)
    if not study.varies:
        study, told = _told_by_settings(runs, jobs, differing, study)
    else:
        told = {run.name: (say(value), value) for run in runs for value in [_at_or_below(run.config, study.varies)]}
        if all(value is None for _, value in told.values()):
            notes.append(f"No run has the setting {study.varies} that the study is said to vary.")
    rows = _rows(runs, told, notes)
    return Sweep(directory, overrides, len(jobs), study, rows, tuple(unfinished), differing, references, tuple(notes))


def _planned(directory: Path) -> tuple[tuple[str, ...], dict[str, list[str]]]:
    """What was typed, and the folders of the jobs with the settings of each, none where there is no plan."""
    path = directory / PLAN
    folders = sorted(
        (folder.name for folder in directory.iterdir() if (folder / "config.yaml").is_file()), key=_natural
    )
    overrides: tuple[str, ...] = ()
    jobs: dict[str, list[str]] = {}
    if path.is_file():
        try:
            plan = json.loads(path.read_text(encoding="utf-8"))
            overrides = tuple(map(str, plan.get("overrides", ())))
            jobs = {str(name): list(map(str, given or ())) for name, given in plan.get("jobs", {}).items()}
        except (ValueError, AttributeError, TypeError) as error:
            raise InputError(
                f"{path}: not the plan of a sweep ({error}); move it away, and start the sweep again"
            ) from error
    return overrides, jobs | {name: [] for name in folders if name not in jobs}


def _natural(name: str) -> list[tuple[int, float, str]]:
    """A key that puts 16 after 4, and text in the order of the alphabet."""
    parts = "".join(c if c.isdigit() else f"\0{c}\0" for c in name).split("\0")
    return [(0, int(part), "") if part.isdigit() and part.isascii() else (1, 0, part) for part in parts if part]


def _read_run(name: str, directory: Path) -> RunResult | Unfinished:
    if not directory.is_dir():
        return Unfinished(name, "not begun")
    metrics = read_metrics(directory)
    config_path = directory / "config.yaml"
    if "config_hash" not in metrics or not config_path.is_file():
        return Unfinished(name, _last_words(directory))
    try:
        config = yaml.safe_load(config_path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{config_path}: not readable YAML ({str(error).splitlines()[0]})") from error
    if not isinstance(config, dict):
        raise InputError(f"{config_path}: not the config of a run")
    for path in ("seed", "test.bleu", "test.chrf", "test.signature.bleu", "test.signature.chrf"):
        value = at(metrics, path)
        if value is None or not (finite(value) or path.startswith("test.signature")):
            raise InputError(
                f"{directory / 'metrics.json'}: has no {path}, though the run is said to be finished; move it away, "
                "and start the sweep again"
            )
    return RunResult(
        name,
        directory,
        config,
        metrics,
        _read_curves(directory / "logs" / "metrics.csv"),
        _read_lines(directory, metrics, "hyp"),
        _read_lines(directory, metrics, "ref"),
    )


def _last_words(directory: Path) -> str:
    """How a job stands by its own account, and the last that was said."""
    try:
        state = f"{json.loads((directory / 'job.json').read_text(encoding='utf-8'))['state']}: "
    except (OSError, ValueError, KeyError, TypeError):
        state = ""
    for name in ("job.log", "train.log"):
        path = directory / name
        if path.is_file():
            lines = [line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
            last = next((line for line in reversed(lines) if line), "nothing was said")
            return f"{state}{last} ({path})"
    return f"{state}begun, and not finished"


def _read_lines(directory: Path, metrics: Config, kind: str) -> dict[str, list[str]]:
    """The lines of <split>.<kind>.<language> for every split that was scored."""
    found = {}
    for split in (name for name in metrics if finite(at(metrics, f"{name}.bleu"))):
        path = next(directory.glob(f"{split}.{kind}.*"), None)  # the language, which not every config names, comes last
        if path is None:
            continue
        try:
            found[split] = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        except ValueError as error:
            raise InputError(f"{path}: not UTF-8 text ({error})") from error
    return found


def _read_curves(path: Path) -> dict[str, list[tuple[int, float]]]:
    """The columns of Lightning's CSV by step; cells that it left empty, or that are no numbers, are left out."""
    curves: dict[str, list[tuple[int, float]]] = {}
    if not path.is_file():
        return curves
    with path.open(encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            for name, cell in line.items():
                try:
                    curves.setdefault(name, []).append((int(line["step"]) + 1, float(cell)))
                except (TypeError, ValueError, KeyError):
                    continue
    return curves


def _check_same_test(runs: Sequence[RunResult]) -> dict[str, Sequence[str]]:
    """The references of each split, which all runs were tested on. Raises InputError for two test sets."""
    first = runs[0]
    for run in runs:
        unread = "test" not in run.references or "test" not in first.references
        if unread and corpus_name(run) != corpus_name(first):
            raise InputError(
                f"{first.directory} and {run.directory} were trained on different corpora ({corpus_name(first)} and "
                f"{corpus_name(run)}), so their scores can't be compared; make a sweep directory of each"
            )
        signatures = [each.figure("test.signature.bleu") for each in (first, run)]
        if signatures[0] != signatures[1]:
            raise InputError(
                f"{first.directory} and {run.directory} were scored differently (BLEU {signatures[0]} and "
                f"{signatures[1]}); evaluate one of them again"
            )
    splits = dict.fromkeys(split for run in runs for split in (*run.references, *run.hypotheses))
    return {split: lines for split in splits if (lines := _references(runs, split)) is not None}


def _references(runs: Sequence[RunResult], split: str) -> Sequence[str] | None:
    """The references of a split, None if no run has them. Raises InputError where runs differ."""
    known = next((run for run in runs if split in run.references), None)
    if known is None:
        return None
    lines = known.references[split]
    for run in runs:
        if run.references.get(split, lines) != lines:
            raise InputError(
                f"{known.directory} and {run.directory} were tested on different references ({split}.ref), so their "
                "scores can't be compared; make a sweep directory of each"
            )
        translated = run.hypotheses.get(split, lines)
        if len(translated) != len(lines):
            raise InputError(
                f"{run.directory}: its {split}.hyp has {len(translated)} lines, and the references of "
                f"{known.directory} have {len(lines)}; evaluate the run again"
            )
    return lines


def corpus_name(run: RunResult) -> str:
    """What a corpus is called: its class, its data set, its languages."""
    paths = ("data.corpus._target_", "data.corpus.path", "data.corpus.name", "data.source", "data.target")
    return " ".join(str(value).rpartition(".")[2] for value in (at(run.config, path) for path in paths) if value)


def _study(run: RunResult) -> Study:
    node = at(run.config, STUDY)
    if not isinstance(node, dict):
        return Study()
    return Study(
        title=node.get("title"),
        varies=node.get("varies"),
        label=node.get("label") or (node["varies"].rpartition(".")[2] if node.get("varies") else None),
        constant=tuple(node.get("constant") or ()),
        about=node.get("about"),
        published=tuple(node.get("published") or ()),
    )


def _differing(runs: Sequence[RunResult]) -> tuple[str, ...]:
    names = dict.fromkeys(name for run in runs for name in run.settings)
    return tuple(name for name in names if len({_key(run.settings.get(name)) for run in runs}) > 1)


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _told_by_settings(
    runs: Sequence[RunResult], jobs: Mapping[str, Sequence[str]], differing: Sequence[str], study: Study
) -> tuple[Study, dict[str, tuple[str, Any]]]:
    """Names and values of rows that are the combinations of all settings that differ, by run.

    A name holds what was typed, if the plan of the sweep tells; else as few of the settings as tell the rows apart; and
    where that is long, a row is called after its first run. Of a single setting, the study gets the name.
    """
    keys = {run.name: _key({name: run.settings.get(name) for name in differing}) for run in runs}
    typed = {run.name: dict(override.lstrip("+").partition("=")[::2] for override in jobs[run.name]) for run in runs}
    by_hand = _telling(list(typed.values()), list(dict.fromkeys(name for own in typed.values() for name in own)))
    settings = {run.name: run.settings for run in runs}
    own = {name: {setting: values.get(setting) for setting in by_hand} for name, values in typed.items()}
    if len({_key([keys[name], own[name]]) for name in keys}) != len({_key(values) for values in own.values()}):
        telling = _telling(list(settings.values()), differing)
        own = {name: {setting: values.get(setting) for setting in telling} for name, values in settings.items()}
    else:
        own = {name: {setting: _parsed(text) for setting, text in values.items()} for name, values in own.items()}
    told: dict[str, tuple[str, Any]] = {}
    first: dict[str, tuple[str, Any]] = {}
    for name, values in own.items():
        label = _name(values)
        if len(label) > LONGEST:
            label = re.sub(r",?seed=\d+", "", name)
        value = next(iter(values.values())) if len(values) == 1 else None
        told[name] = first.setdefault(keys[name], (say(value) if len(values) == 1 else label, value))
    single = next(iter(own.values()))
    return replace(study, label=next(iter(single)).rpartition(".")[2] if len(single) == 1 else None), told


def _parsed(text: str | None) -> Any:
    """The value that was typed; what is no YAML is text."""
    try:
        return yaml.safe_load(text or "")
    except yaml.YAMLError:
        return text


def _telling(settings: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    """As few of the settings as tell apart what all of them do, the first first."""
    found: list[str] = []
    groups = 1
    for name in names:
        if any(name == aside or name.startswith(f"{aside}.") for aside in ASIDE - PLACES):
            continue
        told = len({_key([own.get(other) for other in (*found, name)]) for own in settings})
        if told > groups:
            found.append(name)
            groups = told
    return found


def _rows(runs: Sequence[RunResult], told: Mapping[str, tuple[str, Any]], notes: list[str]) -> tuple[Row, ...]:
    """Runs of the same name and value together, sorted by these. What doesn't fit goes to the notes."""
    members: dict[str, list[RunResult]] = {}
    for run in runs:
        members.setdefault(told[run.name][0], []).append(run)
    rows = []
    for label, found in members.items():
        kept = {run.seed: run for run in reversed(found)}
        for run in found:
            if kept[run.seed] is not run:
                notes.append(f"{run.name} has the seed of {kept[run.seed].name}, and is left out.")
        within = _differing(list(kept.values()))
        if within:
            notes.append(
                f"The runs of {label} differ in more than their seed: {', '.join(within)}. Their spread is not that of "
                "seeds alone."
            )
        rows.append(Row(label, told[found[0].name][1], tuple(kept[seed] for seed in sorted(kept))))
    return tuple(sorted(rows, key=_order))


def _at_or_below(config: Config, path: str) -> Any:
    """A setting's value; of a group, the class that it names."""
    value = at(config, path)
    return value["_target_"].rpartition(".")[2] if isinstance(value, dict) and "_target_" in value else value


def _order(row: Row) -> tuple[int, float, list[tuple[int, float, str]]]:
    number = isinstance(row.value, int | float) and not isinstance(row.value, bool)
    return (0, float(row.value), []) if number else (1, 0.0, _natural(row.label))


def say(value: Any) -> str:
    """A value as one would type it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(say, value))}]"
    return str(value)


def _name(settings: Mapping[str, Any]) -> str:
    """A row by its settings: the last part of each name that no other ends in, and its value."""
    if not settings:
        return "all runs"
    ends = [name.rpartition(".")[2] for name in settings]
    return ", ".join(
        f"{end if ends.count(end) == 1 else name}={say(value).rpartition('headcount.')[2]}"
        for (name, value), end in zip(settings.items(), ends, strict=True)
    )
