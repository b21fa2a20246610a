"""Patching between twins over seeds: the share of the way to the twin of each layer, and of the best head."""

from collections.abc import Container, Iterator, Mapping, Sequence

from headcount.heads.over_seeds import Placed, SeedMean, found_by, placed, seed_mean
from headcount.heads.pictures import HeadMap, MapCell, drawn
from headcount.heads.results import Results, Row, Study, Subject
from headcount.heads.sections.over_seeds.summary import (
    having,
    headers,
    held,
    mean_row,
    plot_name,
    seeds,
    several,
    text_of,
)
from headcount.heads.twin_shares import Shares, largest_share, twin_shares
from headcount.report.blocks import Section
from headcount.report.table import Table

NOTE = (
    "Normalised patching effect, in percent: how far the log-odds of the right and the wrong translation move to those "
    "of the twin, if all heads of a layer, or one head, have their output for the twin. Means over seeds; deep: above "
    "0 by a t test over seeds, all layers, heads and phenomena at once (Holm). Intervals are each for itself. "
    "Layers in a row carry the same cue one after the other, so shares do not add up to 100."
)
HEAD = (
    "The head with the largest share in each run, which is chosen on half of the pairs and measured on the other half; "
    "mean over seeds, and the runs in which that head is in each layer."
)
Means = Mapping[str, Mapping[str, SeedMean]]
"""Shares over seeds by layer and phenomenon."""


def subject(study: Study) -> Subject | None:
    """A map of layers for each row of the sweep, and a table of the head with the largest share."""
    rows = having(study, "twins")
    if not rows:
        return None
    layers = {
        label: layer_means([twin_shares(run.parts["twins"], "layer") for run in runs]) for label, runs in rows.items()
    }
    heads = {label: head_means(runs) for label, runs in rows.items()}
    cells = {(label, *at): mean for label, means in layers.items() for at, mean in _cells(means)}
    cells |= {(label, HEAD, name): own[0] for label, means in heads.items() for name, own in means.items()}
    sure = {at for at in found_by({at: mean.p(0) for at, mean in cells.items()}) if cells[at].mean > 0}
    maps = [
        Section(f"{study.label} {label}, {seeds(len(rows[label]))}", (drawn([_map(label, found, study.label, sure)]),))
        for label, found in layers.items()
    ]
    titles = ("phenomenon", *headers(study, rows))
    names = dict.fromkeys(name for found in heads.values() for name in found)
    lines = tuple((name, *(_text(found.get(name)) for found in heads.values())) for name in names)
    table = Table(titles, lines, held(study, rows), frozenset(range(len(titles))))
    section = Section("Where the cue goes", (NOTE, *maps, HEAD, table))
    largest = [at for at in sure if at[1] == HEAD and several(rows[at[0]])]
    findings = [_finding(heads, study.label, max(largest, key=lambda at: (cells[at].mean, at)))] if largest else []
    return Subject(section, (*_layer_rows(layers), *_head_rows(heads)), tuple(findings))


def layer_means(runs: Sequence[Shares]) -> Means:
    """The mean share of each layer over runs; a phenomenon whose twins a run does not tell apart is left out there."""
    phenomena = [name for name in runs[0].phenomena if all(name in run.phenomena for run in runs)]
    return {
        layer: {name: seed_mean([run.share[row, run.phenomena.index(name)] for run in runs]) for name in phenomena}
        for row, layer in enumerate(runs[0].rows)
    }


def head_means(runs: Sequence[Results]) -> dict[str, tuple[SeedMean, Placed]]:
    """The share of the head with the largest one, and its layers, by phenomenon."""
    found = {}
    for name in sorted({str(name) for run in runs for name in run.parts["twins"]["phenomenon"]}):
        each = [largest_share(run.parts["twins"], name) for run in runs]
        found[name] = seed_mean([share for _, share in each]), placed(name, [[head] for head, _ in each])
    return found


def _cells(means: Means) -> Iterator[tuple[tuple[str, str], SeedMean]]:
    return (((layer, name), mean) for layer, own in means.items() for name, mean in own.items())


def _map(label: str, found: Means, name: str, sure: Container[tuple[str, str, str]]) -> HeadMap:
    columns = list(next(iter(found.values())))
    cells = [
        [_cell(layer, column, means[column], (label, layer, column) in sure) for column in columns]
        for layer, means in found.items()
    ]
    title = f"{name} {label}: share of the way to the twin by layer, in percent"
    file = plot_name("cue", label)
    return HeadMap(file, "share", title, list(found), columns, (), cells, linked=False, corner="layer")


def _cell(layer: str, column: str, share: SeedMean, sure: bool) -> MapCell:
    if not share.runs:
        return MapCell("–", f"{layer}, {column}: the twins are not told apart", False, 0.0)
    title = f"{layer}, {column}: {text_of(share, 0, 100)} % of the way"
    return MapCell(f"{100 * share.mean:z.0f}".replace("-", "−"), title, sure, max(share.mean, 0.0))


def _text(cell: tuple[SeedMean, Placed] | None) -> str:
    if cell is None or not cell[0].runs:
        return "–"
    layers = ", ".join(f"{layer} {runs}" for layer, runs in cell[1].layers.items())
    return f"{text_of(cell[0], 0, 100)} %: {layers}"


def _layer_rows(found: Mapping[str, Means]) -> Iterator[Row]:
    for label, means in found.items():
        for (layer, name), mean in _cells(means):
            yield mean_row(f"{label}:{layer}", "twins.layer", name, mean, "share")


def _head_rows(found: Mapping[str, Mapping[str, tuple[SeedMean, Placed]]]) -> Iterator[Row]:
    for label, own in found.items():
        for name, (mean, _) in own.items():
            yield mean_row(label, "twins.largest", name, mean, "share")


def _finding(found: Mapping[str, Mapping[str, tuple[SeedMean, Placed]]], label: str, at: tuple[str, str, str]) -> str:
    row, _, name = at
    mean, layers = found[row][name]
    place, runs = max(layers.layers.items(), key=lambda item: item[1])
    return (
        f"{label} {row}: patched, one head goes {text_of(mean, 0, 100)} % of the way to the twin in {name}, the most "
        f"of all; in {runs} of {layers.count.runs} runs it is in {place}."
    )
