"""The head that each run misses most, by phenomenon."""

from dataclasses import replace

from headcount.heads.pictures import signed
from headcount.heads.results import Results, Row, Study, Subject
from headcount.heads.sections.knock_out import cells
from headcount.heads.sections.over_seeds.summary import of_page
from headcount.heads.statistics import LOSS
from headcount.report.blocks import Section
from headcount.report.table import Table
from headcount.statistics.max_t import EffectTable

NOTE = (
    "In each cell the head whose removal costs the most accuracy, and the change in points; a star where the effect "
    "differs from 0 within its run, for all heads and phenomena of all runs at once."
)


def subject(study: Study) -> Subject | None:
    """A line for each run; a row of heads.csv for each cell of each run."""
    found = [(label, run, of_page(study, run, "accuracy")) for label, row in study.rows.items() for run in row]
    tables = [(label, run, table) for label, run, table in found if table is not None and len(table.columns) > 1]
    if not tables:
        return None
    names = [name for name in tables[0][2].columns if name != LOSS]
    lines = tuple(
        (label, str(study.seeds[run.name]), *(_worst(table, name) for name in names)) for label, run, table in tables
    )
    table = Table((study.label, "seed", *names), lines, NOTE, frozenset({0, 1}))
    rows = tuple(row for _, run, each in tables for row in _rows(run, each))
    return Subject(Section("The head that each run misses most", (table,)), rows)


def _worst(table: EffectTable, name: str) -> str:
    column = table.columns.index(name)
    row = int(table.harm[:, column].argmax())
    star = "*" if table.verdict[row, column] == "differs" else ""
    return f"{table.rows[row]} {signed(table.estimate[row, column], 0)}{star}"


def _rows(run: Results, table: EffectTable) -> list[Row]:
    return [replace(row, head=f"{run.name}:{row.head}") for row in cells(table, "zero", "accuracy", "")]
