"""Spread of functions over heads: the effective number of heads of the loss and of phenomena, and their layers."""

from collections.abc import Iterator, Mapping, Sequence

from headcount.heads.pictures import HeadMap, MapCell, drawn
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
from headcount.report.blocks import Section
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
        label: [spread([run.parts["ablation"] for run in rows[label]], name) for name in columns] for label in tables
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
    blocks = (NOTE, table, layers)
    title = "Over how many heads is a function spread?"
    return Subject(Section(title, blocks), tuple(_rows(found)), tuple(_findings(found, study.label)))


def _map(label: str, found: Sequence[Spread], name: str) -> HeadMap:
    layers, columns = list(found[0].layers), [each.column for each in found]
    title = f"{name} {label}: share of the harm in each layer, in percent"
    cells = [[_share(each, layer) for each in found] for layer in layers]
    file = plot_name("layers", label)
    return HeadMap(file, "share", title, layers, columns, (), cells, linked=False, corner="layer")


def _share(each: Spread, layer: str) -> MapCell:
    share = each.layers[layer]
    if not share.runs:
        return MapCell("–", f"{layer}, {each.column}: no harm", False, 0.0)
    title = f"{layer}, {each.column}: {text_of(share, 0, 100)} % of the harm"
    return MapCell(f"{100 * share.mean:.0f}", title, True, share.mean)


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
