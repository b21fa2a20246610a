"""BLEU without each head, beside the loss."""

from collections.abc import Iterator

import numpy as np

from headcount.heads.bleu import COLUMN, bleu_table
from headcount.heads.pictures import signed
from headcount.heads.results import Results, Subject
from headcount.heads.sections.knock_out import cells, ends
from headcount.heads.statistics import LOSS
from headcount.report.blocks import Section
from headcount.report.table import Table, interval, p_value
from headcount.statistics.max_t import EffectTable

NOTE = (
    "Greedy translations of {units} test sentences by the model without the head; the whole model has {whole:.1f} "
    "BLEU. Bootstrap over sentences of what each adds to BLEU; intervals (95 %) and p-values hold for all heads at "
    "once. Non-inferior: less than {bound} BLEU is lost at the worse end of the interval."
)


def subject(results: Results) -> Subject | None:
    """A line for each head, the largest loss of BLEU first, with the change of the loss where that was measured."""
    arrays = results.get("bleu")
    if arrays is None:
        return None
    table, loss = bleu_table(arrays, results.bounds.bleu), results.effects("zero", "margin")
    note = NOTE.format(units=table.units[0], whole=table.whole[0], bound=results.bounds.bleu)
    headers = (
        "head",
        "BLEU",
        "95 % interval",
        "p",
        "verdict",
        *("loss, nats a sentence", "95 % interval") * bool(loss),
    )
    lines = tuple(_line(table, loss, row) for row in np.argsort(-table.harm[:, 0], kind="stable"))
    section = Section("BLEU without each head", (Table(headers, lines, note, frozenset({0, 4})),))
    return Subject(section, tuple(cells(table, "zero", "bleu", "")), tuple(_findings(table)))


def _line(table: EffectTable, loss: EffectTable | None, row: int) -> tuple[str, ...]:
    change, between = signed(table.estimate[row, 0], 1), interval(ends(table, row, 0), 1)
    line = (table.rows[row], change, between, p_value(table.p[row, 0]), str(table.verdict[row, 0]))
    if loss is None:
        return line
    place = loss.rows.index(table.rows[row]), loss.columns.index(LOSS)
    return (*line, signed(loss.estimate[place], 2), interval(ends(loss, *place)))


def _findings(table: EffectTable) -> Iterator[str]:
    row = int(table.harm[:, 0].argmax())
    sure = int((table.verdict == "differs").sum())
    if table.verdict[row, 0] == "differs":
        yield (
            f"{sure} of {len(table.rows)} heads, each switched off alone, change {COLUMN}; without {table.rows[row]} "
            f"it falls the most, by {table.harm[row, 0]:z.1f} {interval((-table.high[row, 0], -table.low[row, 0]), 1)}."
        )
