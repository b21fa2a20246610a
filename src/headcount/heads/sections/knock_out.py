"""The knock-out map: effect of each head, switched off, on the loss and on each phenomenon."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from headcount.heads.ablation import KINDS
from headcount.heads.pictures import drawn, effect_map, signed
from headcount.heads.results import POINTS, SENTENCE, Results, Row, Subject
from headcount.heads.statistics import LOSS, free_to_cut
from headcount.report.blocks import Section
from headcount.report.table import interval, p_value
from headcount.report.verdicts import listed
from headcount.statistics.max_t import EffectTable

UNITS = {"accuracy": (POINTS, 0), "margin": (SENTENCE, 2)}
UNIT_OF = {"accuracy": POINTS, "sensitivity": POINTS, "margin": SENTENCE, LOSS: SENTENCE}
UNIT_OF |= {"bleu": "BLEU", "interaction": SENTENCE}
NOTE = (
    "A row is a head whose output is set to 0 while all else stays as it is. Red: worse without the head; blue: "
    "better. Pale and hatched: not significant. Accuracy also falls where the model shifts towards one answer, "
    "whatever the source; sensitivity (the share of pairs whose margin is larger with the source than with its twin) "
    "does not. The loss is in nats a sentence and has a scale of its own. Intervals "
    "(95 %) and p-values hold for all cells of a map at once (max-T over resamples of the test sentences)."
)
LIMIT = (
    "An output of 0 is one that the model has never met, and other heads may take over the work of a head that is "
    "missing. One run is one seed: heads of another seed have other places."
)
LARGE = 10  # points of accuracy


def subject(results: Results) -> Subject | None:
    """The map, and a row of heads.csv for each cell of each kind of ablation."""
    loss = results.effects("zero", "margin")
    if loss is None:
        return None
    tables = {name: table for name in UNITS if (table := results.effects("zero", name)) and len(table.columns) > 1}
    told = results.effects("zero", "sensitivity")
    maps = [
        effect_map(
            f"knock_out_{name}",
            name,
            f"Change of {name} without each head, {UNITS[name][0]}; of the loss, {SENTENCE}",
            table,
            *UNITS[name],
        )
        for name, table in tables.items()
    ] or [effect_map("knock_out_loss", LOSS, f"Change of the loss without each head, {SENTENCE}", loss, SENTENCE, 2)]
    section = Section("What is lost without each head", (_verdict(loss), drawn(maps), NOTE, LIMIT))
    changing = (f"{_changing(loss)}.",) if (loss.verdict == "differs").any() else ()
    found = tuple(_findings(tables, told)) or changing
    return Subject(section, tuple(_rows(results)), found)


def _verdict(table: EffectTable) -> str:
    sure = table.verdict == "differs"
    names = [name for name in table.columns if name != LOSS]
    free = [head for head, cut in zip(table.rows, free_to_cut(table), strict=True) if cut]
    parts = [_changing(table)]
    for column in map(table.columns.index, names):
        if found := int(sure[:, column].sum()):
            largest = int(np.where(sure[:, column], abs(table.estimate[:, column]), -np.inf).argmax())
            parts += [f"{table.columns[column]}: {found} (largest effect: {table.rows[largest]})"]
    cut = f"Free to cut by loss (non-inferior, one head at a time): {', '.join(free) or 'none is shown'}."
    return f"{'; '.join(parts)}. {cut}"


def _changing(table: EffectTable) -> str:
    count = int((table.verdict == "differs").any(axis=1).sum())
    return f"{count} of {len(table.rows)} heads change something that can be distinguished from chance"


def _findings(tables: Mapping[str, EffectTable], table: EffectTable | None) -> Iterator[str]:
    """The largest loss of sensitivity, and the phenomenon lost without a head that matters little for the loss.

    Significance is that of the margin, which has more power; a shift towards one answer lowers accuracy, too.
    """
    if set(tables) != set(UNITS) or table is None:
        return
    margin = tables["margin"]
    columns = [column for column, name in enumerate(table.columns) if name != LOSS]
    sure = (margin.verdict == "differs") & (margin.harm > 0) & (table.harm > 0)
    harmful = sorted(
        (cell for cell in map(tuple, np.argwhere(sure)) if cell[1] in columns), key=lambda cell: -table.harm[cell]
    )
    if not harmful:
        return
    by_loss = np.argsort(np.argsort(table.harm[:, table.columns.index(LOSS)]))
    cheap = [cell for cell in harmful if by_loss[cell[0]] < len(table.rows) / 3 and table.harm[cell] >= LARGE]
    for cell in dict.fromkeys([harmful[0], *cheap[:1]]):
        rank = f" By loss it is number {int(by_loss[cell[0]]) + 1} of {len(table.rows)}, the cheapest first."
        yield _finding(tables, table, *cell) + (rank if cell in cheap else "")
    lost = {table.columns[column] for row, column in harmful if table.harm[row, column] >= LARGE}
    which = f": {listed(sorted(lost))}" if lost else ""
    yield (
        f"{len(lost)} of {len(columns)} phenomena have a head without which the margin falls (tested) and {LARGE} "
        f"points of sensitivity or more are lost (estimated){which}."
    )


def _finding(tables: Mapping[str, EffectTable], told: EffectTable, row: int, column: int) -> str:
    table, margin = tables["accuracy"], tables["margin"]
    before, change = table.whole[column], table.estimate[row, column]
    p, nats = p_value(margin.p[row, column]), signed(margin.estimate[row, column], 2)
    alone = "" if table.verdict[row, column] == "differs" else ", which by itself may be chance"
    return (
        f"Without {table.rows[row]}, {table.columns[column]} falls from {before:.1f} to {before + change:.1f} % "
        f"({signed(change, 1)} points {interval(ends(table, row, column), 1)}{alone}; margin {nats} {SENTENCE} "
        f"{interval(ends(margin, row, column))}, p {p}). Sensitivity, which no shift towards one answer changes, "
        f"changes by {signed(told.estimate[row, column], 1)} points {interval(ends(told, row, column), 1)}."
    )


def ends(table: EffectTable, row: int, column: int) -> tuple[float, float]:
    """The interval of a cell."""
    return float(table.low[row, column]), float(table.high[row, column])


def _rows(results: Results) -> Iterator[Row]:
    for kind in KINDS:
        for endpoint in UNITS:
            table = results.effects(kind, endpoint)
            if table is not None:
                yield from cells(table, kind, endpoint, LOSS if endpoint == "margin" else "")
    if told := results.effects("zero", "sensitivity"):
        yield from cells(told, "zero", "sensitivity", "")


def cells(table: EffectTable, kind: str, endpoint: str, loss: str) -> Iterator[Row]:
    """A row of heads.csv for each cell of a table; the loss only where it has a name."""
    for row, column in np.ndindex(*table.estimate.shape):
        name = table.columns[column]
        measure = loss if name == LOSS else endpoint
        if measure:
            arrays: Sequence = (table.estimate, table.low, table.high, table.p)
            estimate, low, high, p = (float(array[row, column]) for array in arrays)
            verdict, unit = str(table.verdict[row, column]), UNIT_OF[measure]
            yield Row(table.rows[row], f"{kind}.{measure}", name, estimate, low, high, p, verdict, unit=unit)
