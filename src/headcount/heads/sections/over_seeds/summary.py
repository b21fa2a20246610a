"""Summaries over seeds: the runs that have a part, figures with their intervals as text."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from headcount.heads.interface import heads_named
from headcount.heads.over_seeds import FAMILY, Placed, SeedCount, SeedMean
from headcount.heads.recurrence import same_pairs
from headcount.heads.results import Results, Row, Study
from headcount.report.table import interval
from headcount.statistics.max_t import DRAWS, EffectTable

INTERVALS = (
    "Means over seeds with 95 % t intervals, each for itself; a run is one observation. Fewer than three seeds, and "
    "seeds that are all equal, have no interval."
)
Rows = Mapping[str, Sequence[Results]]


def having(study: Study, *parts: str) -> dict[str, list[Results]]:
    """The runs that have all these parts, by row; rows without any are left out."""
    found = {
        label: [run for run in runs if all(run.get(part) is not None for part in parts)]
        for label, runs in study.rows.items()
    }
    return {label: runs for label, runs in found.items() if runs}


def held(study: Study, rows: Rows) -> str:
    """The number of runs that a section holds for, where it is not all, and whether they have sentences of their own;
    empty otherwise."""
    parts = [arrays for run in study.runs for arrays in run.parts.values()]
    sentences = {str(arrays["sentences"]) for arrays in parts if "sentences" in arrays}
    apart = "Not all runs were measured on the same sentences." if len(sentences) > 1 else ""
    some, every = sum(map(len, rows.values())), len(study.runs)
    if some == every:
        return apart
    each = ", ".join(
        f"{study.label} {label}: {len(rows.get(label, ()))} of {len(runs)}" for label, runs in study.rows.items()
    )
    return f"Measured in {some} of {every} runs ({each}). {apart}".rstrip()


def headers(study: Study, rows: Rows) -> list[str]:
    """A header for each row of the sweep, with its number of seeds."""
    return [f"{study.label} {label}, {seeds(len(runs))}" for label, runs in rows.items()]


def plot_name(*parts: str) -> str:
    """The name of the files of a plot, with labels of rows such as "norm=pre, num_heads=4" or a path."""
    return re.sub(r"[^\w=.-]+", "_", "_".join(parts))


def seeds(runs: int) -> str:
    """A number of seeds in words."""
    return f"{runs} seed{'s' * (runs != 1)}"


def effects(study: Study, endpoint: str) -> dict[str, list[EffectTable]]:
    """Tables of the effects of zero ablation by row, see `of_page`. Raises InputError for runs measured on different
    designs."""
    rows = having(study, "ablation")
    same_pairs([run.parts["ablation"] for runs in rows.values() for run in runs])
    return {label: [table for run in runs if (table := of_page(study, run, endpoint))] for label, runs in rows.items()}


def of_page(study: Study, run: Results, endpoint: str) -> EffectTable | None:
    """The effects of zero ablation of a run; "differs" where p is at most FAMILY / runs (Bonferroni over the runs of
    the page), or the second smallest p of the bootstrap where that is larger, from 23 runs on."""
    table, most = run.effects("zero", endpoint), max(FAMILY / len(study.runs), 1.5 / DRAWS)
    if table is None:
        return None
    weak = (table.verdict == "differs") & (table.p > most)
    return replace(table, verdict=np.where(weak, "undecided", table.verdict))


def several(runs: Sequence[Results]) -> bool:
    """Whether a layer of these runs has more than one head; where none has, a head is all of its layer."""
    return any(head.head > 1 for run in runs for head in heads_named(run.heads))


def text_of(each: SeedMean, digits: int = 2, scale: float = 1, runs: int | None = None) -> str:
    """A mean with its interval; with its number of runs where that is not `runs`."""
    if not each.runs:
        return "–"
    few = f", {seeds(each.runs)}" if runs is not None and each.runs != runs else ""
    known = not math.isnan(each.low)
    between = f" {interval((scale * each.low, scale * each.high), digits)}" if known else ""
    return f"{scale * each.mean:z.{digits}f}{between}{few}".replace("-", "−")


def range_of(each: SeedMean, digits: int = 1) -> str:
    """A mean with its interval and its range."""
    between = f", {each.least:.0f} to {each.most:.0f}" if each.runs > 1 else ""
    return text_of(each, digits) + between


def count_of(each: SeedCount) -> str:
    """A number of runs with the interval of its share; a single run has none."""
    return f"{each.found} of {each.runs}" + (f" {interval((each.low, each.high))}" if each.runs > 1 else "")


def placed_of(each: Placed) -> str:
    """The runs with a head for a role, and its layers."""
    layers = ", ".join(f"{layer} {runs}" for layer, runs in each.layers.items())
    return f"{count_of(each.count)}{f': {layers}' if layers else ''}"


def mean_row(label: str, endpoint: str, column: str, each: SeedMean, unit: str) -> Row:
    """A row of heads.csv; a figure that no run has is NaN."""
    low, high = (None, None) if math.isnan(each.low) else (each.low, each.high)
    return Row(label, endpoint, column, each.mean, low, high, runs=each.runs, unit=unit)


def count_row(label: str, endpoint: str, column: str, each: SeedCount) -> Row:
    """A row of heads.csv: a share of runs."""
    low, high = (each.low, each.high) if each.runs > 1 else (None, None)
    return Row(label, endpoint, column, each.found / each.runs, low, high, runs=each.runs, unit="share of runs")
