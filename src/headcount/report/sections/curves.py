"""Learning curves: validation loss and BLEU over steps."""

import pandas as pd

from headcount.report.page import Section, View
from headcount.report.runs import finite
from headcount.report.study import Study
from headcount.report.views import curve

CURVES = {"validation loss": "valid/loss", "validation BLEU, greedy": "valid/bleu"}  # columns of the log
NOTE = "The mean of each row, in the band from its lowest to its highest run. A click in the legend picks rows."


def curves(study: Study) -> Section | None:
    points = [
        (row.label, name, step, value)
        for name, column in CURVES.items()
        for row in study.rows
        for run in row.runs
        for step, value in run.curves.get(column, ())
        if finite(value)
    ]
    if not points:
        return None
    table = pd.DataFrame(points, columns=["row", "measure", "step", "value"])
    groups = table.groupby(["measure", "row", "step"], sort=False)["value"]
    table = groups.agg(["mean", "min", "max", "count"]).reset_index()
    table = table[table["count"] == table.groupby(["measure", "row"])["count"].transform("max")]
    chart = curve(table, x="step", y="mean", colour="row", low="min", high="max", choose="measure")
    return Section("Learning curves", (NOTE, View("curves", "validation loss and BLEU over steps", chart)))
