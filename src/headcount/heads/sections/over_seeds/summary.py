"""Summaries over seeds: the runs that have a part, figures with their intervals as text, and plots with error bars."""

import math
import re
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from headcount.heads.over_seeds import Placed, SeedCount, SeedMean
from headcount.heads.recurrence import same_pairs
from headcount.heads.results import Results, Row, Study
from headcount.report.axes import plot, style_of
from headcount.report.plot import Plot
from headcount.report.statistics.max_t import EffectTable
from headcount.report.table import interval

INTERVALS = "Means over seeds with 95 % t intervals; a run is one observation, and a single seed has no interval."
Rows = Mapping[str, Sequence[Results]]


def having(study: Study, *parts: str) -> dict[str, list[Results]]:
    """The runs that have all these parts, by row; rows without any are left out."""
    found = {
        label: [run for run in runs if all(run.get(part) is not None for part in parts)]
        for label, runs in study.rows.items()
    }
    return {label: runs for label, runs in found.items() if runs}


def held(study: Study, rows: Rows) -> str:
    """The number of runs that a section holds for, where it is not all; empty otherwise."""
    some, every = sum(map(len, rows.values())), len(study.runs)
    if some == every:
        return ""
    each = ", ".join(
        f"{study.label} {label}: {len(rows.get(label, ()))} of {len(runs)}" for label, runs in study.rows.items()
    )
    return f"Measured in {some} of {every} runs ({each})."


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
    """Tables of the effects of zero ablation by row. Raises InputError for runs measured on different pairs."""
    rows = having(study, "ablation")
    same_pairs([run.parts["ablation"] for runs in rows.values() for run in runs])
    tables = {label: [run.effects("zero", endpoint) for run in runs] for label, runs in rows.items()}
    return {label: [table for table in found if table is not None] for label, found in tables.items()}


def text_of(each: SeedMean, digits: int = 2, scale: float = 1, runs: int | None = None) -> str:
    """A mean with its interval; with its number of runs where that is not `runs`."""
    if not each.runs:
        return "–"
    few = f", {seeds(each.runs)}" if runs is not None and each.runs != runs else ""
    between = f" {interval((scale * each.low, scale * each.high), digits)}" if each.runs > 1 else ""
    return f"{scale * each.mean:z.{digits}f}{between}{few}".replace("-", "−")


def range_of(each: SeedMean, digits: int = 1) -> str:
    """A mean with its interval and its range."""
    between = f", {each.least:.0f} to {each.most:.0f}" if each.runs > 1 else ""
    return text_of(each, digits) + between


def count_of(each: SeedCount, words: str = "") -> str:
    """A number of runs with the interval of its share; a single run has none. words: after the number, " runs"."""
    return f"{each.found} of {each.runs}{words}" + (f" {interval((each.low, each.high))}" if each.runs > 1 else "")


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


def forest(
    name: str, title: str, lines: Mapping[str, Mapping[str, SeedMean]], columns: Sequence[str], at: float, words: str
) -> Plot:
    """Means with intervals, a line for each column and a mark for each row of the sweep. lines: by label of the row and
    by column. at: a vertical line. words: of the horizontal axis."""

    def draw(axes: Axes) -> None:
        axes.axvline(at, color="grey", linewidth=0.8)
        for index, (label, means) in enumerate(lines.items()):
            colour, marker = style_of(index)
            shift = 0.6 * ((index + 0.5) / len(lines) - 0.5)
            own = [(place + shift, means[column]) for place, column in enumerate(columns) if column in means]
            y, x = [place for place, _ in own], [each.mean for _, each in own]
            sides = [[each.mean - each.low for _, each in own], [each.high - each.mean for _, each in own]]
            axes.errorbar(x, y, xerr=sides, fmt=marker, color=colour, markersize=4, linewidth=1, label=label)
        axes.set_yticks(range(len(columns)), columns)
        axes.set_ylim(len(columns) - 0.5, -0.5)
        axes.set_xlabel(words)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))

    return plot(name, title, draw, (5.2, 0.9 + 0.34 * len(columns)))
