"""Every run: its seed, its scores, and its directory."""

from headcount.report.blocks import Section
from headcount.report.measures import measures
from headcount.report.study import Study
from headcount.report.table import Table


def section(study: Study) -> Section:
    known = measures(study)
    label = study.sweep.design.label or "row"
    lines = []
    for index, row in enumerate(study.rows):
        for place, run in enumerate(row.runs):
            figures = [f"{measure.scores[index][place]:.5g}" for measure in known]
            lines.append((run.name, row.label, str(run.seed), *figures))
    headers = ("run", label, "seed", *(measure.name for measure in known))
    names = tuple(run.name for run in study.sweep.runs)
    return Section("Every run", (Table(headers, tuple(lines), words=frozenset({0, 1}), runs=names),))
