"""Cutting over seeds: curves by the number of heads left with bands over seeds, and how many heads can go."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from headcount.heads.cutting_curves import RANDOM, curves, free_by_bleu
from headcount.heads.over_seeds import Band, SeedMean, bands, cuts
from headcount.heads.results import Results, Row, Study, Subject
from headcount.heads.sections.cutting import ENDPOINTS, NAMES, UNITS
from headcount.heads.sections.over_seeds.summary import having, held, mean_row, plot_name, range_of, seeds
from headcount.report.axes import plot, style_of
from headcount.report.blocks import Plots, Section
from headcount.report.plot import Plot
from headcount.report.table import Table

NOTE = (
    "Heads are switched off one after another, without training afterwards, in the orders of each run. Lines: means "
    "over seeds at each number of heads left. Bands: 95 % t intervals of the means over seeds, each for itself; fewer "
    "than three seeds have none. "
    "Random: the mean of the random orders of a run."
)
LIMITS = (
    "Heads that can go: mean over seeds with its 95 % t interval, and the range over seeds. By BLEU: before the upper "
    "end of the interval of the loss, within the run, reaches {bleu} BLEU; BLEU is measured at a few points of a "
    "curve, so this is a lower bound."
)


@dataclass(frozen=True)
class Found:
    """A row of the sweep. heads: of the model. bound: of BLEU. bands: by endpoint. cut: by order."""

    runs: int
    heads: int
    bound: float
    bands: Mapping[str, Sequence[Band]]
    cut: Mapping[str, SeedMean]


def subject(study: Study) -> Subject | None:
    """Curves for each row of the sweep, and the heads that each order can cut."""
    rows = having(study, "cutting")
    if not rows:
        return None
    found = {label: over_runs(runs) for label, runs in rows.items()}
    parts = (
        Section(f"{study.label} {label}, {seeds(each.runs)}", (_plots(label, each, study.label),))
        for label, each in found.items()
    )
    section = Section(
        "How many heads can go, over seeds?", (NOTE, _table(found, study.label, held(study, rows)), *parts)
    )
    return Subject(section, tuple(_rows(found)), tuple(_findings(found, study.label)))


def over_runs(runs: Sequence[Results]) -> Found:
    """Bands and limits of the runs of a row."""
    arrays = [run.parts["cutting"] for run in runs]
    every = [curves(each) for each in arrays]
    found = {name: bands(every, name) for name in ENDPOINTS if len(getattr(every[0][0], name))}
    heads, bound = len(arrays[0]["head"]), runs[0].bounds.bleu
    limits = cuts([free_by_bleu(each, run.bounds.bleu) for each, run in zip(arrays, runs, strict=True)], heads)
    return Found(len(runs), heads, bound, found, limits)


def _table(found: Mapping[str, Found], label: str, note: str) -> Table:
    lines = tuple(
        (row, NAMES.get(order, order), str(each.heads), range_of(heads))
        for row, each in found.items()
        for order, heads in each.cut.items()
    )
    limits = LIMITS.format(bleu=next(each.bound for each in found.values()))
    return Table((label, "order", "heads", "by BLEU"), lines, " ".join(filter(None, (limits, note))), frozenset({0, 1}))


def _plots(row: str, found: Found, label: str) -> Plots:
    return Plots(tuple(_plot(name, f"{label} {row}", own) for name, own in found.bands.items()), small=True)


def _plot(endpoint: str, row: str, found: Sequence[Band]) -> Plot:
    def draw(axes: Axes) -> None:
        for index, band in enumerate(found):
            colour, marker = ("grey", "") if band.order == RANDOM else style_of(index)
            name = "random orders" if band.order == RANDOM else NAMES.get(band.order, band.order)
            axes.plot(band.left, band.mean, color=colour, marker=marker, markersize=3, linewidth=1.2, label=name)
            axes.fill_between(band.left, band.low, band.high, color=colour, alpha=0.15, linewidth=0)
        axes.set_xlabel("heads left")
        axes.set_ylabel(ENDPOINTS[endpoint])
        axes.invert_xaxis()
        axes.legend(loc="best", fontsize=6)

    name = plot_name("cutting", endpoint, row)
    return plot(name, f"{row}: {ENDPOINTS[endpoint]}, by the number of heads left, mean over seeds", draw)


def _rows(found: Mapping[str, Found]) -> Iterator[Row]:
    for label, each in found.items():
        for endpoint, own in each.bands.items():
            for band in own:
                yield from _points(label, endpoint, band)
        for order, heads in each.cut.items():
            yield mean_row(label, f"cut.{order}", "bleu", heads, "heads")


def _points(label: str, endpoint: str, band: Band) -> Iterator[Row]:
    for left, mean, low, high in zip(band.left.tolist(), band.mean, band.low, band.high, strict=True):
        ends = (None, None) if np.isnan(low) else (float(low), float(high))
        yield Row(
            f"{label}:{left} left",
            f"cutting.{band.order}",
            endpoint,
            float(mean),
            ends[0],
            ends[1],
            None,
            "",
            band.runs,
            UNITS[endpoint],
        )


def _findings(found: Mapping[str, Found], label: str) -> Iterator[str]:
    # All rows, and not the best order alone: which one that is was not chosen on other sentences.
    means = {row: [each.mean for each in own.cut.values()] for row, own in found.items() if own.cut}
    each = [f"{label} {row}: {min(own):.1f} to {max(own):.1f} of {found[row].heads}" for row, own in means.items()]
    if each:
        bound = next(iter(found.values())).bound
        yield f"Heads that can go for less than {bound} BLEU, by the order, means over seeds: {'; '.join(each)}."
