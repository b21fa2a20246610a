"""Results of one run and of the runs of a sweep, as the pages read them, and the rows of heads.csv."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from headcount.heads.analysis import Arrays
from headcount.heads.links import Claim, claimed_roles
from headcount.heads.statistics import Bounds, effect_table
from headcount.report.runs import Unfinished
from headcount.statistics.max_t import EffectTable

SENTENCE, POINTS = "nats per sentence", "points"
"""Units: of the loss of a reference and of the margin of a pair of translations; of accuracy."""


class Row(NamedTuple):
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


@dataclass(frozen=True, eq=False)
class Results:
    """Arrays of one run by the name of their part. name: of the run. languages: codes of source and target. bounds: of
    what does not matter. own: whether headcount trained it."""

    name: str
    directory: Path
    languages: tuple[str, str]
    parts: Mapping[str, Arrays]
    bounds: Bounds
    own: bool = True

    @property
    def heads(self) -> tuple[str, ...]:
        """The names of all heads."""
        named = (arrays["head"].tolist() for arrays in self.parts.values() if "head" in arrays)
        return tuple(next(named, ()))

    @cache  # noqa: B019 - results live as long as the command
    def effects(self, kind: str, endpoint: str) -> EffectTable:
        """Effects of each head, from the part `ablation`."""
        return effect_table(self.parts["ablation"], kind, endpoint, self.bounds)

    @cache  # noqa: B019
    def claims(self) -> list[Claim]:
        """Every head with every relation, from the parts roles, gold and ablation."""
        return claimed_roles(self.parts["roles"], self.parts["gold"], self.parts["ablation"])


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

    def having(self, *parts: str) -> dict[str, list[Results]]:
        """The runs that have all these parts, by row; rows without any are left out."""
        found = {label: [run for run in runs if run.parts.keys() >= set(parts)] for label, runs in self.rows.items()}
        return {label: runs for label, runs in found.items() if runs}
