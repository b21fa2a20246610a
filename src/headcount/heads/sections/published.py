"""Published figures on heads of trained models, beside those of this run."""

from importlib.resources import files
from typing import Any

import yaml

from headcount.heads.hard_concrete import open_heads
from headcount.heads.interface import heads_named
from headcount.heads.results import Results, Subject
from headcount.heads.roles import role_figures
from headcount.heads.statistics import LOSS, free_to_cut
from headcount.report.blocks import Section
from headcount.report.table import Table

NOTE = (
    "Not to be subtracted: other data, other sizes, other endpoints. Theirs are BLEU of large models on WMT; ours are "
    "the loss and the phenomena of a small model, by simultaneous intervals. Theirs choose and measure on the same "
    "sentences; ours choose on validation and measure on test sentences."
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
            ours.get(row["ours"], "–"),
        )
        for row in _published()
    )
    table = Table(("source", "model", "measure", "published", "this run"), lines, "", frozenset(range(5)))
    return Subject(Section("Beside published figures", (NOTE, table)))


def _published() -> list[dict[str, Any]]:
    return list(yaml.safe_load(files(__package__).joinpath("published.yaml").read_text(encoding="utf-8")))


def _ours(results: Results) -> dict[str, str]:
    """Our figures by their names in published.yaml."""
    found, table = {}, results.effects("zero", "margin")
    if table is not None:
        loss = table.columns.index(LOSS)
        sure = table.verdict[:, loss] == "differs"
        better = int((sure & (table.harm[:, loss] < 0)).sum())
        found["changes"] = f"{int(sure.sum())} of {len(table.rows)} heads change the loss, {better} of which improve it"
        found["free"] = (
            f"one at a time, {int(free_to_cut(table).sum())} of {len(table.rows)} heads are free to cut by loss"
        )
    roles = results.get("roles")
    if roles is not None:
        positional = role_figures(roles).positional
        found["positional"] = f"{int(positional.sum())} of {len(positional)} heads"
    cutting = results.get("cutting")
    if cutting is not None:
        encoder = [head.kind == "encoder" for head in heads_named(cutting["head"])]
        left = open_heads(cutting["log_alpha"])[:, encoder].sum(axis=1)
        pairs = zip(left.tolist(), cutting["penalty"].tolist(), strict=True)
        counts = ", ".join(f"{count} (penalty {penalty:g})" for count, penalty in pairs)
        found["gates"] = f"of {sum(encoder)} encoder heads, weights frozen: {counts}"
    return found
