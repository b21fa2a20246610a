"""Spread of functions over heads: the effective number of heads of the loss and of phenomena, and their layers."""

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes

from headcount.heads.pictures import DEEPEST, HARM, HeadMap, MapCell, drawn
from headcount.heads.recurrence import Spread, spread
from headcount.heads.results import Row, Study, Subject
from headcount.heads.sections.over_seeds.summary import (
    INTERVALS,
    effects,
    having,
    headers,
    held,
    mean_row,
    plot_name,
    seeds,
    text_of,
)
from headcount.report.axes import Scale, plot, style_of
from headcount.report.blocks import Plots, Section
from headcount.report.plot import Plot
from headcount.report.table import Table

NOTE = (
    "The effective number of heads is the participation ratio of the harm h of removing each head of a run, "
    "(sum of h)² / (sum of h²): 1 if one head does it all, the number of heads if all do the same; help counts against "
    "harm. Both sums of squares are without the noise of the sentences, as products of two halves are. Share: of all "
    "heads. A run without harm that can be told from noise has no effective number."
)
LAYERS = (
    "The share of the harm in each layer, in percent, mean over seeds; help counts as 0, and noise moves shares "
    "towards even ones. Intervals are in heads.csv, each for itself."
)
FIGURES = {"heads": ("heads", 1, 1), "share": ("share of all, %", 0, 100)}  # words, digits and scale
Found = Mapping[str, Sequence[Spread]]


def subject(study: Study) -> Subject | None:
    """The effective number of heads by row of the sweep, and the layers of each function."""
    rows, tables = having(study, "ablation"), effects(study, "margin")
    if not tables:
        return None
    columns = next(iter(tables.values()))[0].columns
    found = {
        label: [spread(label, [run.parts["ablation"] for run in rows[label]], name) for name in columns]
        for label in tables
    }
    cells = tuple(
        (
            name,
            words,
            *(text_of(getattr(own[n], figure), digits, scale, len(rows[label])) for label, own in found.items()),
        )
        for n, name in enumerate(columns)
        for figure, (words, digits, scale) in FIGURES.items()
    )
    note = " ".join(filter(None, (INTERVALS, held(study, rows))))
    table = Table(("column", "effective number", *headers(study, rows)), cells, note, frozenset({0, 1}))
    maps = [
        Section(f"{study.label} {label}, {seeds(len(rows[label]))}", (drawn([_map(label, own, study.label)]),))
        for label, own in found.items()
    ]
    layers = Section("In which layer", (LAYERS, *maps))
    blocks = (NOTE, Plots((_plot(found, study.label),)), table, layers)
    title = "Over how many heads is a function spread?"
    return Subject(Section(title, blocks), tuple(_rows(found)), tuple(_findings(found, study.label)))


def _plot(found: Found, label: str) -> Plot:
    labels = list(found)
    scale = Scale([int(row) if row.isdigit() else row for row in labels], labels, label)
    columns = [each.column for each in next(iter(found.values()))]

    def draw(axes: Axes) -> None:
        for index, name in enumerate(columns):
            colour, marker = style_of(index)
            means = [own[index].heads for own in found.values()]
            shift = [at * 1.02 ** (index - len(columns) / 2) for at in scale.at]
            sides = [[each.mean - each.low for each in means], [each.high - each.mean for each in means]]
            axes.errorbar(
                shift, [each.mean for each in means], yerr=sides, marker=marker, color=colour, markersize=4,
                linewidth=1, elinewidth=0.6, linestyle=scale.line, label=name,
            )  # fmt: skip
        scale.apply(axes)
        axes.set_ylabel("effective number of heads")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))

    return plot("spread", f"effective number of heads of each function, by {label}", draw, (5.6, 3.1))


def _map(label: str, found: Sequence[Spread], name: str) -> HeadMap:
    layers, columns = list(found[0].layers), [each.column for each in found]
    title = f"{name} {label}: share of the harm in each layer, in percent"
    cells = [[_share(each, layer) for each in found] for layer in layers]
    file = plot_name("layers", label)
    return HeadMap(file, "share", title, layers, columns, (), cells, linked=False, corner="layer")


def _share(each: Spread, layer: str) -> MapCell:
    share = each.layers[layer]
    if not share.runs:
        return MapCell("–", f"{layer}, {each.column}: no harm", False, HARM, 0.0)
    title = f"{layer}, {each.column}: {text_of(share, 0, 100)} % of the harm"
    return MapCell(f"{100 * share.mean:.0f}", title, True, HARM, DEEPEST * share.mean**0.6)


def _rows(found: Found) -> Iterator[Row]:
    for label, own in found.items():
        for each in own:
            yield mean_row(label, "spread", each.column, each.heads, "heads")
            yield mean_row(label, "spread.share", each.column, each.share, "share of heads")
            for layer, share in each.layers.items():
                yield mean_row(f"{label}:{layer}", "spread.layer", each.column, share, "share of harm")


def _findings(found: Found, label: str) -> Iterator[str]:
    first, last = next(iter(found)), list(found)[-1]
    if first != last and all(found[row][0].heads.runs for row in (first, last)):
        ends = [
            f"{label} {row}: {text_of(own.heads, 1)}, {text_of(own.share, 0, 100)} % of all"
            for row, own in ((row, found[row][0]) for row in (first, last))
        ]
        yield f"The effective number of heads of the loss is, over seeds, {'; '.join(ends)}."
