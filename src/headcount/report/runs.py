"""Finished runs, the rows they form, and the sweep they belong to."""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from headcount.evaluation.metrics import METRICS
from headcount.run.identity import FINGERPRINT
from headcount.settings import PLACES, Design, at, flatten, is_learnt, within

CORPUS = ("data.seed", "data.held_out.seed", FINGERPRINT)  # settings that make another corpus of the same kind
VOCABULARY = ("tokenizer", "data.cleaning", FINGERPRINT)  # the text is learnt from

Config = dict[str, Any]


@dataclass(frozen=True)
class Unfinished:
    """A job without final figures, and the reason as far as it is known."""

    name: str
    why: str


@dataclass(frozen=True)
class RunResult:
    """A finished run.

    curves: its log as a table, empty if there is none. hypotheses: the lines of each held-out split, such as valid and
    test, that has the file. references: the same, from any run on the same corpus.
    """

    name: str
    directory: Path
    config: Config
    metrics: dict[str, Any]
    curves: pd.DataFrame
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

    def key(self, groups: Collection[str], without: Collection[str] = ()) -> str:
        """Its settings within groups as text, the same for equal settings."""
        own = self.settings.items()
        return key_of({name: value for name, value in own if within(name, groups) and not within(name, without)})

    @property
    def corpus(self) -> str:
        """The corpus in words: its kind, its data set, its languages."""
        paths = ("data.kind", "data.path", "data.name", "data.source", "data.target")
        return " ".join(str(value) for path in paths if (value := at(self.config, path)))


@dataclass(frozen=True)
class Row:
    """Runs that differ only in their seed. settings: those that name the row, with their values."""

    label: str
    runs: tuple[RunResult, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def same_pieces(self, other: "Row") -> bool:
        """Whether the runs of the same seed have the same vocabulary; without a common seed, whether they have the same
        settings of it, on corpora of the same kind. Losses are per piece: they compare only then."""
        mine, others = ({run.seed: run.key(VOCABULARY) for run in row.runs} for row in (self, other))
        if common := mine.keys() & others.keys():
            return all(mine[seed] == others[seed] for seed in common)
        return self.runs[0].key(VOCABULARY, CORPUS) == other.runs[0].key(VOCABULARY, CORPUS)

    def figures(self, path: str) -> list[float]:
        """A figure of every run that has it as a finite number."""
        values = [run.figure(path) for run in self.runs]
        return [float(value) for value in values if finite(value)]


@dataclass(frozen=True)
class Sweep:
    """A directory of runs, read.

    jobs: the number of jobs. differing: the settings in which finished runs differ. corpora: whether each seed has a
    corpus of its own, with test sentences of its own. notes: warnings for the reader. left_out: the finished runs of no
    row: with the seed of another run, or a value that their row did not choose. tried: of a setting that each row chose
    for itself, a line for each value: it, the mean of the loss, whether it is chosen, the seeds, and the name of a run
    of the row.
    """

    directory: Path
    jobs: int
    design: Design
    rows: tuple[Row, ...]
    unfinished: tuple[Unfinished, ...]
    differing: tuple[str, ...]
    corpora: bool
    notes: tuple[str, ...]
    left_out: tuple[RunResult, ...] = ()
    tried: pd.DataFrame | None = None

    @property
    def runs(self) -> list[RunResult]:
        return [run for row in self.rows for run in row.runs]

    @property
    def blocks(self) -> bool:
        """Whether every row has a run on each of several corpora."""
        return self.corpora and len({tuple(run.seed for run in row.runs) for row in self.rows}) == 1

    @property
    def metrics(self) -> list[str]:
        """The metrics whose test score every run has. Older runs lack a metric that was added later."""
        return [key for key in METRICS if all(finite(run.figure(f"test.{key}")) for run in self.runs)]


def separates_rows(name: str) -> bool:
    """Whether runs with other values of a setting are other rows: what is learnt, and what ends a run."""
    return (is_learnt(name) or within(name, ("validation",))) and not within(name, (*PLACES, "seed"))


def key_of(value: Any) -> str:
    """A value of a config as text, the same for equal values."""
    return json.dumps(value, sort_keys=True, default=str)


def finite(value: Any) -> bool:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
