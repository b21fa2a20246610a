"""Three kinds of ablation side by side: an effect of zero ablation alone may come from an output never met before."""

import numpy as np
from scipy import stats

from headcount.heads.ablation import KINDS
from headcount.heads.results import SENTENCE, Results, Subject
from headcount.heads.statistics import LOSS
from headcount.report.blocks import Section
from headcount.report.statistics.max_t import EffectTable
from headcount.report.table import Table

NOTE = (
    "Zero: the output is 0. Mean: it is the head's mean over random tokens of validation sentences. Resample: it is "
    "the head's output at one of these tokens. A cell is an effect of a head on the margin of a phenomenon, or on the "
    "loss."
)
MOST = 10


def subject(results: Results) -> Subject | None:
    """How far the kinds agree, and the largest effects that only some of them find."""
    tables = {kind: table for kind in KINDS if (table := results.effects(kind, "margin")) is not None}
    if len(tables) < len(KINDS):
        return None
    lines = tuple(_agreement(tables, kind) for kind in KINDS)
    headers = ("kind", "cells that differ", f"mean harm in loss, {SENTENCE}", "rank correlation with zero, loss")
    blocks: list = [NOTE, Table(headers, lines)]
    if apart := _apart(tables):
        note = f"The largest {MOST} at most."
        blocks += [
            "Cells that differ under zero ablation alone:",
            Table(("head", "column", *(f"{kind}, {SENTENCE}" for kind in KINDS)), apart, note),
        ]
    return Subject(Section("Zero, mean and resample ablation", tuple(blocks)))


def _agreement(tables: dict[str, EffectTable], kind: str) -> tuple[str, ...]:
    table, zero = tables[kind], tables["zero"]
    loss = table.columns.index(LOSS)
    rank = stats.spearmanr(table.harm[:, loss], zero.harm[:, loss]).statistic if len(table.rows) > 1 else np.nan
    return (kind, str(int((table.verdict == "differs").sum())), f"{table.harm[:, loss].mean():z.2f}", f"{rank:z.2f}")


def _apart(tables: dict[str, EffectTable]) -> tuple[tuple[str, ...], ...]:
    zero = tables["zero"]
    alone = zero.verdict == "differs"
    for kind in KINDS[1:]:
        alone &= tables[kind].verdict != "differs"
    cells = sorted(map(tuple, np.argwhere(alone)), key=lambda cell: -abs(zero.harm[cell]))[:MOST]
    return tuple(
        (zero.rows[row], zero.columns[column], *(f"{tables[kind].estimate[row, column]:+z.2f}" for kind in KINDS))
        for row, column in cells
    )
