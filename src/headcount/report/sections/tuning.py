"""The choice of a setting for each row: the values tried, their losses, and the one chosen."""

from collections.abc import Mapping

from headcount.report.page import Section, escaped, markdown_table
from headcount.report.runs import Tried, finite, key_of
from headcount.report.study import Study
from headcount.report.verdicts import listed, quoted
from headcount.settings import typed


def tuning(study: Study) -> Section | None:
    chosen = study.sweep.tuning
    if chosen is None:
        return None
    tried = {row.label: chosen.tried[row.runs[0].name] for row in study.rows}
    values = list({key_of(value): value for each in tried.values() for value, _ in each.losses}.values())
    values = sorted(values) if all(map(finite, values)) else values
    keys = [key_of(value) for value in values]  # a value may be a list
    cells = []
    for label, each in tried.items():
        losses = {key_of(value): loss for value, loss in each.losses}
        shown = [f"{losses[key]:.4f}" if key in losses else "–" for key in keys]
        cells.append((label, *shown, typed(each.chosen), " ".join(map(str, each.seeds))))
    headers = (study.label, *map(typed, values), "chosen", "seeds of the choice")
    note = (
        "Mean validation loss, in nats, over the seeds that all values of the row have. The runs with the value of the "
        "lowest loss are the row; the others are left out. The intervals do not allow for this choice, which the "
        "sentences of validation made."
    )
    table = markdown_table(headers, cells)
    return Section(f"Choice of {chosen.setting}", (*filter(None, (note, escaped(_edges(tried)))), table))


def _edges(tried: Mapping[str, Tried]) -> str:
    """Rows that chose the smallest or the largest of their values, beyond which the best may lie."""
    found: dict[str, list[str]] = {}
    for label, each in tried.items():
        values = [value for value, _ in each.losses]
        if len(values) == 1:
            found.setdefault("one value only, so nothing was chosen", []).append(label)
        elif all(map(finite, values)) and each.chosen in (values[0], values[-1]):
            end = "smallest" if each.chosen == values[0] else "largest"
            found.setdefault(f"the {end} value tried is chosen, and a better one may lie beyond it", []).append(label)
    every = len(tried)
    who = {what: "All rows" if len(rows) == every else listed([*map(quoted, rows)]) for what, rows in found.items()}
    return " ".join(f"{rows}: {what}." for what, rows in who.items())
