"""Quality: BLEU, validation loss and other figures of each row, and the mean of each value of two settings."""

from collections.abc import Sequence

import pandas as pd

from headcount.report.measures import measures
from headcount.report.page import Section, View, markdown_table
from headcount.report.runs import Row
from headcount.report.study import Study
from headcount.report.table import scores
from headcount.report.views import curve, forest


def quality(study: Study) -> Section:
    known = measures(study)
    table = pd.concat([measure.table(study, **{study.label: study.labels}) for measure in known], ignore_index=True)
    ends, hover = {"low": "low", "high": "high", "choose": "measure"}, ("runs",)
    chart = forest(table, label=study.label, value="mean", at=None, hover=hover, **ends)
    blocks = [View("quality", f"{study.endpoint.name} by {study.label}", chart)]
    if names := two_settings(study.rows):
        settings = {_short(name): [row.settings[name] for row in study.rows] for name in names}
        table = pd.concat([measure.table(study, **settings) for measure in known], ignore_index=True)
        axis, other = settings
        lines = curve(table.sort_values(axis), x=axis, y="mean", colour=other, log=True, hover=hover, **ends)
        blocks.append(View("factors", f"{study.endpoint.name} by {axis} and {other}", lines))
    digits = [4 if "loss" in measure.name or measure.comparison.means[0] < 2 else 2 for measure in known]
    cells = [(each.name, *scores(each.comparison, places)) for each, places in zip(known, digits, strict=True)]
    interval = ", with the 95 % interval over seeds" if study.endpoint.comparison.spread else ""
    note = f"Means of rows{interval}. BLEU of N tokens: of the sentences whose references have that many."
    return Section("Quality", (note, *blocks, markdown_table(("", *study.labels), cells)))


def two_settings(rows: Sequence[Row]) -> tuple[str, str] | None:
    """The setting on the axis and the setting of the lines: of whole numbers above 0 the one with more values is on the
    axis. None where rows differ in another number of settings, or no value is in two rows."""
    names = list(rows[0].settings)
    if len(names) != 2 or any(list(row.settings) != names for row in rows):
        return None
    values = {name: {str(row.settings[name]): row.settings[name] for row in rows} for name in names}
    axes = [name for name in names if all(type(value) is int and value > 0 for value in values[name].values())]
    if not axes or len(rows) <= max(map(len, values.values())):
        return None
    axis = max(axes, key=lambda name: len(values[name]))
    return axis, names[1 - names.index(axis)]


def _short(name: str) -> str:
    return name.rpartition(".")[2]
