"""A study as data: finished runs, the rows they form, and what the study compares."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from headcount.run.identity import NO_MATTER, PLACES

ASIDE = NO_MATTER | PLACES | {"seed"}  # settings that make no row
STUDY = "study"

Config = dict[str, Any]


@dataclass(frozen=True)
class StudyConfig:
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
    study: StudyConfig
    rows: tuple[Row, ...]
    unfinished: tuple[Unfinished, ...]
    differing: tuple[str, ...]
    references: Mapping[str, Sequence[str]]
    notes: tuple[str, ...]

    @property
    def runs(self) -> list[RunResult]:
        return [run for row in self.rows for run in row.runs]

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


def corpus_name(run: RunResult) -> str:
    """What a corpus is called: its class, its data set, its languages."""
    paths = ("data.corpus._target_", "data.corpus.path", "data.corpus.name", "data.source", "data.target")
    return " ".join(str(value).rpartition(".")[2] for value in (at(run.config, path) for path in paths) if value)
