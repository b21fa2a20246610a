"""Cutting over seeds: curves by the number of heads left with bands over seeds, and how many heads can go."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from headcount.heads.cutting_curves import RANDOM, above_chance, curves, free_by_bleu
from headcount.heads.over_seeds import Band, Cut, bands, cuts
from headcount.heads.results import Results, Row, Study, Subject
from headcount.heads.sections.cutting import NAMES, PLOTS, UNITS
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
    "curve, so this is a lower bound. By phenomena: before the accuracy of a first one can no longer be distinguished "
    "from chance; a run without any above chance is left out"
)
ENDPOINTS = {**PLOTS, "bleu": "BLEU, greedy search"}


@dataclass(frozen=True)
class Found:
    """A row of the sweep. heads: of the model. pairs: of a phenomenon, the fewest. bound: of BLEU. bands: by
    endpoint."""

    runs: int
    heads: int
    pairs: int
    bound: float
    bands: Mapping[str, Sequence[Band]]
    by_bleu: Sequence[Cut]
    by_phenomenon: Sequence[Cut]


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
    names, counts = np.unique(arrays[0]["phenomenon"], return_counts=True)
    every = [curves(each) for each in arrays]
    found = {name: bands(every, name) for name in ENDPOINTS if len(names) or name != "worst"}
    heads = len(arrays[0]["head"])
    by_phenomenon = cuts([above_chance(each) for each in arrays], names.tolist(), heads) if len(names) else ()
    by_bleu = cuts([free_by_bleu(run.parts["cutting"], run.bounds.bleu) for run in runs], most=heads)
    return Found(len(runs), heads, min(counts.tolist(), default=0), runs[0].bounds.bleu, found, by_bleu, by_phenomenon)


def _table(found: Mapping[str, Found], label: str, note: str) -> Table:
    lines = tuple(line for row, each in found.items() for line in _lines(row, each))
    pairs, bound = next((each.pairs, each.bound) for each in found.values())
    titles = (label, "order", "heads", "by BLEU", *(("by phenomena", "the first") if pairs else ()))
    limits = LIMITS.format(bleu=bound) + (f" (with {pairs} pairs that is no proof of chance)." if pairs else ".")
    return Table(titles, lines, " ".join(filter(None, (limits, note))), frozenset({0, 1, 5}))


def _lines(row: str, found: Found) -> Iterator[tuple[str, ...]]:
    by_phenomenon = {each.order: each for each in found.by_phenomenon}
    for each in found.by_bleu:
        line = (row, NAMES.get(each.order, each.order), str(found.heads), range_of(each.heads))
        lost = by_phenomenon.get(each.order)
        yield (*line, range_of(lost.heads), _first(lost)) if lost else line


def _first(each: Cut) -> str:
    none = {"none": each.all_gone} if each.all_gone else {}
    return ", ".join(f"{name} {runs}" for name, runs in {**each.first, **none}.items())


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
        for name, limits in (("bleu", each.by_bleu), ("phenomenon", each.by_phenomenon)):
            for limit in limits:
                yield mean_row(label, f"cut.{limit.order}", name, limit.heads, "heads")


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
    means = {row: [each.heads.mean for each in own.by_bleu] for row, own in found.items() if own.by_bleu}
    each = [f"{label} {row}: {min(own):.1f} to {max(own):.1f} of {found[row].heads}" for row, own in means.items()]
    if each:
        bound = next(iter(found.values())).bound
        yield f"Heads that can go for less than {bound} BLEU, by the order, means over seeds: {'; '.join(each)}."
