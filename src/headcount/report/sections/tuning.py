"""The choice of a setting for each row: the values tried, their losses, and the one chosen."""

from headcount.report.page import Section, markdown_table
from headcount.report.runs import Tried, finite
from headcount.report.study import Study
from headcount.settings import typed

NOTE = (
    "Mean validation loss, in nats, over the seeds that all values of the row have. The runs with the lowest loss "
    "are the row; the others are left out. The intervals do not allow for this choice, which the sentences of "
    "validation made. Beyond the smallest or the largest value tried, a better one may lie."
)


def tuning(study: Study) -> Section | None:
    chosen = study.sweep.tuning
    if chosen is None:
        return None
    tried = {row.label: chosen.tried[row.runs[0].name] for row in study.rows}
    cells = [
        (label, typed(value), f"{loss:.4f}", _choice(each, place), " ".join(map(str, each.seeds)))
        for label, each in tried.items()
        for place, (value, loss) in enumerate(each.losses)
    ]
    headers = (study.label, chosen.setting, "validation loss", "chosen", "seeds of the choice")
    return Section(f"Choice of {chosen.setting}", (NOTE, markdown_table(headers, cells, words=(0, 3))))


def _choice(tried: Tried, place: int) -> str:
    """Whether the value in a place is the chosen one, and the smallest or the largest of several."""
    values = [value for value, _ in tried.losses]
    if values[place] != tried.chosen or len(values) == 1:
        return "" if values[place] != tried.chosen else "the only one"
    end = {0: ", the smallest", len(values) - 1: ", the largest"} if all(map(finite, values)) else {}
    return f"yes{end.get(place, '')}"
