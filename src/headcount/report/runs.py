"""Finished runs, the rows they form, and the sweep they belong to."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from headcount.evaluation.metrics import METRICS
from headcount.run.identity import FINGERPRINT
from headcount.settings import PLACES, Design, at, flatten, is_learnt, within

CORPUS = ("data.seed", "data.held_out.seed", FINGERPRINT)  # settings that make another corpus of the same kind
VOCABULARY = ("tokenizer", "data.cleaning", FINGERPRINT)  # the text is learnt from

Config = dict[str, Any]


def names_rows(override: str) -> bool:
    """Whether a setting of a job's command line can tell its row from others."""
    return separates_rows(override) or override in ("recipe", "study.arm")


def separates_rows(name: str) -> bool:
    """Whether runs with other values of a setting are other rows: what is learnt, and what ends a run."""
    return (is_learnt(name) or within(name, ("validation",))) and not within(name, (*PLACES, "seed"))


@dataclass(frozen=True)
class Unfinished:
    """A job without final figures, and the reason as far as it is known."""

    name: str
    why: str


@dataclass(frozen=True)
class RunResult:
    """A finished run.

    curves: (step, value) of each column of its log. hypotheses: the lines of each held-out split, such as valid and
    test, that has the file. references: the same, from any run on the same corpus that has the file.
    """

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
        """The config by dotted name, without the settings that do not separate rows."""
        return {name: value for name, value in flatten(self.config).items() if separates_rows(name)}

    def figure(self, path: str) -> Any:
        """The value in metrics.json at a path such as test.bleu; None if there is none."""
        return at(self.metrics, path)

    @property
    def own_corpus(self) -> str:
        """What tells its corpus from others of the same kind."""
        return str([self.settings.get(name) for name in CORPUS])

    def vocabulary(self, other: tuple[str, ...] = ()) -> str:
        """The settings that decide the pieces, without those in `other`."""
        names = (name for name in sorted(self.settings) if within(name, VOCABULARY) and not within(name, other))
        return str([(name, self.settings[name]) for name in names])

    @property
    def corpus(self) -> str:
        """The corpus in words: its kind, its data set, its languages."""
        paths = ("data.kind", "data.path", "data.name", "data.source", "data.target")
        return " ".join(str(value) for path in paths if (value := at(self.config, path)))


@dataclass(frozen=True)
class Row:
    """Runs that differ only in their seed. value: of the setting that varies, if there is one such setting. settings:
    those that name the row, with their values."""

    label: str
    value: Any
    runs: tuple[RunResult, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def same_pieces(self, other: "Row") -> bool:
        """Whether the runs of the same seed have the same vocabulary; without a common seed, whether they have the same
        settings of it, on corpora of the same kind. Losses are per piece: they compare only then."""
        mine, others = ({run.seed: run.vocabulary() for run in row.runs} for row in (self, other))
        common = mine.keys() & others.keys()
        if not common:
            return self.runs[0].vocabulary(CORPUS) == other.runs[0].vocabulary(CORPUS)
        return all(mine[seed] == others[seed] for seed in common)

    def figures(self, path: str) -> list[float]:
        """A figure of every run that has it as a finite number."""
        values = [run.figure(path) for run in self.runs]
        return [float(value) for value in values if finite(value)]


@dataclass(frozen=True)
class Tried:
    """The values of a setting that a row was trained with. losses: each value, and the mean validation loss of its runs
    in nats, over `seeds`, which all values have. chosen: the value with the lowest loss."""

    losses: tuple[tuple[Any, float], ...]
    seeds: tuple[int, ...]
    chosen: Any


@dataclass(frozen=True)
class Tuning:
    """A setting that each row chose for itself. tried: by name of a run, the values of its row. left_out: the runs with
    other values than the chosen ones. together: the settings that follow it, and itself."""

    setting: str
    tried: Mapping[str, Tried]
    left_out: tuple[RunResult, ...]
    together: tuple[str, ...]


@dataclass(frozen=True)
class Sweep:
    """A directory of runs, read.

    jobs: the number of jobs. differing: the settings in which finished runs differ. corpora: whether each seed has a
    corpus of its own, with test sentences of its own. references, sources: of each held-out split, from any run that
    has them; empty with such corpora. notes: warnings for the reader. tuning: of a setting that each row chose for
    itself. repeated: runs that have the seed of another run of their row.
    """

    directory: Path
    jobs: int
    design: Design
    rows: tuple[Row, ...]
    unfinished: tuple[Unfinished, ...]
    differing: tuple[str, ...]
    corpora: bool
    references: Mapping[str, Sequence[str]]
    sources: Mapping[str, Sequence[str]]
    notes: tuple[str, ...]
    tuning: Tuning | None = None
    repeated: tuple[RunResult, ...] = ()

    @property
    def runs(self) -> list[RunResult]:
        return [run for row in self.rows for run in row.runs]

    @property
    def blocks(self) -> bool:
        """Whether every row has a run on each of several corpora."""
        return self.corpora and len({tuple(run.seed for run in row.runs) for row in self.rows}) == 1

    @property
    def left_out(self) -> tuple[RunResult, ...]:
        """The finished runs of no row: with the seed of another run, or a value that their row did not choose."""
        return (*self.repeated, *(self.tuning.left_out if self.tuning else ()))

    @property
    def shared(self) -> Config:
        """The settings that all finished runs share."""
        first = self.runs[0].settings
        return {name: value for name, value in first.items() if name not in self.differing}

    @property
    def metrics(self) -> list[str]:
        """The metrics whose test score every run has. Older runs lack a metric that was added later."""
        return [key for key in METRICS if all(finite(run.figure(f"test.{key}")) for run in self.runs)]


def key_of(value: Any) -> str:
    """A value of a config as text, the same for equal values."""
    return json.dumps(value, sort_keys=True, default=str)


def finite(value: Any) -> bool:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
