"""Three kinds of ablation side by side: an effect of zero ablation alone may come from an output never met before."""

import numpy as np
from scipy import stats

from headcount.heads.ablation import KINDS
from headcount.heads.results import SENTENCE, Results, Subject
from headcount.heads.sections.knock_out import ends
from headcount.heads.statistics import LOSS, difference_table
from headcount.report.blocks import Section
from headcount.report.table import Table, interval, p_value
from headcount.statistics.max_t import EffectTable

NOTE = (
    "Zero: the output is 0. Mean: it is the head's mean over random tokens of validation sentences. Resample: it is "
    "the head's output at one of these tokens, another one for each position. A cell is an effect of a head on the "
    "margin of a phenomenon, or on the loss."
)
MOST = 10


def subject(results: Results) -> Subject | None:
    """How far the kinds agree, and the largest differences between zero and mean ablation."""
    tables = {kind: table for kind in KINDS if (table := results.effects(kind, "margin")) is not None}
    if len(tables) < len(KINDS):
        return None
    lines = tuple(_agreement(tables, kind) for kind in KINDS)
    headers = ("kind", "cells that differ", f"mean harm in loss, {SENTENCE}", "rank correlation with zero, loss")
    blocks: list = [NOTE, Table(headers, lines)]
    if apart := _apart(tables, difference_table(results.parts["ablation"], "mean")):
        note = f"The largest {MOST} at most. Paired over sentences; all cells of the difference are one family."
        titles = ("head", "column", *(f"{kind}, {SENTENCE}" for kind in KINDS), "zero less mean", "95 % interval", "p")
        blocks += ["Cells whose effect by zero ablation is not that by mean ablation:", Table(titles, apart, note)]
    return Subject(Section("Zero, mean and resample ablation", tuple(blocks)))


def _agreement(tables: dict[str, EffectTable], kind: str) -> tuple[str, ...]:
    table, zero = tables[kind], tables["zero"]
    loss = table.columns.index(LOSS)
    rank = stats.spearmanr(table.harm[:, loss], zero.harm[:, loss]).statistic if len(table.rows) > 1 else np.nan
    return (kind, str(int((table.verdict == "differs").sum())), f"{table.harm[:, loss].mean():z.2f}", f"{rank:z.2f}")


def _apart(tables: dict[str, EffectTable], apart: EffectTable) -> tuple[tuple[str, ...], ...]:
    cells = sorted(map(tuple, np.argwhere(apart.verdict == "differs")), key=lambda cell: -abs(apart.estimate[cell]))
    return tuple(
        (
            *(apart.rows[row], apart.columns[column]),
            *(f"{table.estimate[row, column]:+z.2f}" for table in (*tables.values(), apart)),
            *(interval(ends(apart, row, column)), p_value(apart.p[row, column])),
        )
        for row, column in cells[:MOST]
    )
