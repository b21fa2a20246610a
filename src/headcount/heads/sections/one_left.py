"""One head left: of each layer only the best head stays on, all other layers are whole (Michel et al. 2019)."""

import numpy as np

from headcount.heads.interface import Layer, heads_named
from headcount.heads.pictures import signed
from headcount.heads.results import Results, Subject
from headcount.heads.sections.knock_out import UNITS, cells, ends
from headcount.heads.statistics import LOSS
from headcount.report.blocks import Section
from headcount.report.table import Table, interval
from headcount.statistics.max_t import EffectTable

NOTE = (
    "One layer at a time has one head; all other layers are whole. The head is the one with the least loss on these "
    "same test sentences, as in Michel et al. 2019, so its loss is somewhat too low. The phenomenon is the one that "
    "loses the most accuracy then. Intervals (95 %) hold for all heads at once."
)


def subject(results: Results) -> Subject | None:
    """A line for each layer of two heads or more, and a row of heads.csv for each head and column."""
    ablation = results.get("ablation")
    if ablation is None or "only.reference" not in ablation:
        return None
    tables = {name: table for name in UNITS if (table := results.effects("only", name))}
    rows = [row for name, table in tables.items() for row in cells(table, "only", name, LOSS * (name == "margin"))]
    best = best_alone(tables["margin"])
    if not best:
        return None
    names = tables["accuracy"].columns
    more = ("phenomenon", "accuracy, points", "95 % interval") * (len(names) > 1)
    headers = ("layer", "head left", "loss, nats a sentence", "95 % interval", *more)
    lines = tuple((str(layer), *_line(tables, row)) for layer, row in best.items())
    return Subject(
        Section("One head left in a layer", (Table(headers, lines, NOTE, frozenset({0, 1, 4})),)), tuple(rows)
    )


def best_alone(table: EffectTable) -> dict[Layer, int]:
    """The row of the head with the least loss when it alone is left in its layer, for layers of two heads or more."""
    harm = table.harm[:, table.columns.index(LOSS)]
    layers: dict[Layer, list[int]] = {}
    for row, head in enumerate(heads_named(table.rows)):
        layers.setdefault(head.place, []).append(row)
    return {layer: min(rows, key=lambda row: harm[row]) for layer, rows in layers.items() if len(rows) > 1}


def _line(tables: dict[str, EffectTable], row: int) -> tuple[str, ...]:
    loss, accuracy = tables["margin"], tables["accuracy"]
    place = loss.columns.index(LOSS)
    line = (loss.rows[row], signed(loss.estimate[row, place], 2), interval(ends(loss, row, place)))
    others = [column for column, name in enumerate(accuracy.columns) if name != LOSS]
    if not others:
        return line
    worst = others[int(np.argmax(accuracy.harm[row, others]))]
    change = signed(accuracy.estimate[row, worst], 1), interval(ends(accuracy, row, worst), 1)
    return (*line, accuracy.columns[worst], *change)
