"""Published figures on heads of trained models, beside those of this run."""

from importlib.resources import files
from typing import Any

import numpy as np
import yaml

from headcount.heads.analysis import Arrays
from headcount.heads.cutting_curves import Limit, free_by_bleu
from headcount.heads.hard_concrete import open_heads
from headcount.heads.interface import heads_named
from headcount.heads.results import Results, Subject
from headcount.heads.sections.one_left import best_alone
from headcount.heads.statistics import LOSS, effect_table
from headcount.report.blocks import Section
from headcount.report.statistics.max_t import EffectTable
from headcount.report.table import Table

NOTE = (
    "Not to be subtracted: other data, other sizes, other endpoints. Theirs are BLEU of large models on WMT, chosen "
    "and measured on the same sentences. Ours are of a small model: loss by simultaneous intervals, and orders of "
    "cutting that were chosen on validation sentences and measured on test sentences."
)


def subject(results: Results) -> Subject | None:
    """The table of published.yaml with a column of our figures; None without a figure of ours."""
    ours = _ours(results)
    if not ours:
        return None
    lines = tuple(
        (
            f"{row['source']}{'' if row['read'] else ' (recalled)'}",
            row["model"],
            row["measure"],
            row["figure"],
            ours.get(row["ours"], "not measured"),
        )
        for row in _published()
    )
    table = Table(("source", "model", "measure", "published", "this run"), lines, "", frozenset(range(5)))
    return Subject(Section("Beside published figures", (NOTE, table)))


def _published() -> list[dict[str, Any]]:
    return list(yaml.safe_load(files(__package__).joinpath("published.yaml").read_text(encoding="utf-8")))


def _ours(results: Results) -> dict[str, str]:
    """Our figures by their names in published.yaml."""
    ablation, cutting = results.get("ablation"), results.get("cutting")
    found = {}
    if ablation is not None:
        found["changes"] = _changes(effect_table(ablation))
    if ablation is not None and "only.reference" in ablation and best_alone(only := effect_table(ablation, "only")):
        found["only"] = _only(only)
    if cutting is not None:
        found["gates"] = _gates(cutting)
        limits = {limit.order: limit for limit in free_by_bleu(cutting, results.bounds.bleu)}
        if "gradient" in limits:
            found["order"] = _order(limits["gradient"], len(cutting["head"]), results.bounds.bleu)
    return found


def _changes(table: EffectTable) -> str:
    encoder = np.array([head.kind == "encoder" for head in heads_named(table.rows)])
    loss = table.columns.index(LOSS)
    sure = (table.verdict[:, loss] == "differs") & encoder
    better = sure & (table.harm[:, loss] < 0)
    return f"{sure.sum()} of {encoder.sum()} encoder heads change the loss, {better.sum()} of which improve it"


def _only(table: EffectTable) -> str:
    """The layer that loses most where its best head alone is kept."""
    harm = table.harm[:, table.columns.index(LOSS)]
    layer, row = max(best_alone(table).items(), key=lambda item: harm[item[1]])
    return f"{layer}, {harm[row]:+z.2f} nats a sentence with {table.rows[row]} alone, the best on these sentences"


def _gates(arrays: Arrays) -> str:
    encoder = [head.kind == "encoder" for head in heads_named(arrays["head"])]
    left = open_heads(arrays["log_alpha"])[:, encoder].sum(axis=1)
    pairs = zip(left.tolist(), arrays["penalty"].tolist(), strict=True)
    counts = ", ".join(f"{count} (penalty {penalty:g})" for count, penalty in pairs)
    return f"of {sum(encoder)} encoder heads, weights frozen: {counts}"


def _order(limit: Limit, heads: int, bound: float) -> str:
    return f"{limit.cut} of {heads} heads ({100 * limit.cut / heads:.0f} %) for less than {bound} BLEU, in that order"
