"""Pages of toy sweeps, and their parts."""

import json
import re
from pathlib import Path

from headcount.report.page import Page, Section
from headcount.report.read import read_sweep
from headcount.report.study import Margins, Study
from headcount.report.write import make_page

ROWS = {1: 0.45, 4: 0.2}
MARGINS = Margins(bleu=0.5, loss=0.02, accuracy=5.0)


def edit(path: Path, **changes) -> None:
    """Change figures, given as test__bleu=1; None takes one away."""
    figures = json.loads(path.read_text(encoding="utf-8"))
    for name, value in changes.items():
        node, *groups, last = figures, *name.split("__")
        for group in groups:
            node = node[group]
        node[last] = value
        if value is None:
            del node[last]
    path.write_text(json.dumps(figures), encoding="utf-8")


def with_data(line: str):
    """Gives a config a line more under data."""
    return lambda text: text.replace("data:\n", f"data:\n  {line}\n")


def job(heads: int, seed: int) -> str:
    return f"model.num_heads={heads},seed={seed}"


def study_of(folder: Path) -> Study:
    return Study.of(read_sweep(folder), 100, MARGINS)


def page_of(folder: Path) -> Page:
    return make_page(study_of(folder))


def rows_of(folder: Path) -> list[str]:
    return [row.label for row in read_sweep(folder).rows]


def section_of(page: Page, title: str) -> Section:
    (section,) = (section for section in page.sections if section.title == title)
    return section


class Table:
    """A table of a section: headers and cells as text."""

    def __init__(self, section: Section, number: int = 0) -> None:
        texts = [block for block in section.blocks if isinstance(block, str) and block.startswith("|")]
        lines = [line for line in texts[number].splitlines() if line.startswith("|")]
        rows = [
            [re.sub(r"\\(.)", r"\1", cell.strip()) for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines
        ]
        self.headers, _, *self.cells = rows


def table_of_section(page: Page, title: str, number: int = 0) -> Table:
    """Its first table, or that with a number."""
    return Table(section_of(page, title), number)
