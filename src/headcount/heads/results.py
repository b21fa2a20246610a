"""Results of one run on disk, RUN/heads/*.npz, and the subjects of a page that are computed from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from headcount.heads.analysis import Arrays
from headcount.heads.links import Claim, claimed_roles
from headcount.heads.statistics import Bounds, effect_table
from headcount.report.blocks import Section
from headcount.report.runs import Unfinished
from headcount.statistics.max_t import EffectTable

SENTENCE, POINTS = "nats a sentence", "points"
"""Units: of the loss of a reference and of the margin of a pair of translations; of accuracy."""


@dataclass(frozen=True, eq=False)
class Results:
    """Arrays of one run by the name of their part. name: of the run. languages: codes of source and target. bounds: of
    what does not matter."""

    name: str
    directory: Path
    languages: tuple[str, str]
    parts: Mapping[str, Arrays]
    bounds: Bounds

    def get(self, part: str) -> Arrays | None:
        """The arrays of a part; None where it was not measured."""
        return self.parts.get(part)

    @property
    def heads(self) -> tuple[str, ...]:
        """The names of all heads."""
        named = (arrays["head"].tolist() for arrays in self.parts.values() if "head" in arrays)
        return tuple(next(named, ()))

    @cache  # noqa: B019 - results live as long as the command
    def effects(self, kind: str, endpoint: str) -> EffectTable | None:
        """Effects of each head; None where ablation was not measured."""
        arrays = self.get("ablation")
        return None if arrays is None else effect_table(arrays, kind, endpoint, self.bounds)

    @cache  # noqa: B019
    def claims(self) -> list[Claim]:
        """Every head with every relation; empty where roles, gold or ablation was not measured."""
        roles, gold, ablation = (self.get(part) for part in ("roles", "gold", "ablation"))
        return claimed_roles(roles, gold, ablation) if roles and gold and ablation else []


@dataclass(frozen=True)
class Row:
    """A row of heads.csv: the effect or the figure of a head in one column of one endpoint. runs: the number of runs
    behind a figure over seeds. unit: of estimate, low and high."""

    head: str
    endpoint: str
    column: str
    estimate: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    verdict: str = ""
    runs: int | None = None
    unit: str = ""


@dataclass(frozen=True)
class Subject:
    """A subject of the page. rows: of heads.csv. findings: sentences, the most striking one first."""

    section: Section
    rows: tuple[Row, ...] = ()
    findings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Study:
    """Results of the runs of a sweep. label: the name of what its rows differ in. rows: the runs by label of a row."""

    directory: Path
    label: str
    rows: Mapping[str, Sequence[Results]]
    unfinished: tuple[Unfinished, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def runs(self) -> list[Results]:
        return [run for row in self.rows.values() for run in row]
