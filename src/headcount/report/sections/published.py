"""Published figures on the same question."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import yaml
from matplotlib.axes import Axes

from headcount.errors import InputError
from headcount.report.axes import COLOURS, Scale, plot
from headcount.report.blocks import Plots, Section
from headcount.report.drawing import Plot
from headcount.report.sections.quality import bleu_plot
from headcount.report.study import Study
from headcount.report.table import Table
from headcount.report.verdicts import capital

NOTE = (
    "Beside our figures, and not to be subtracted from them: each paper counted BLEU in its own way, on its own test "
    "set. Only the shape can be compared."
)
OURS = "The second plot shows our runs, on another scale."


@dataclass(frozen=True)
class PublishedRow:
    """A row of a paper's table."""

    value: str | int
    bleu: float
    perplexity: float | None = None


@dataclass(frozen=True)
class PublishedTable:
    """A table of a paper, or a claim without rows. read: read off the paper, not recalled."""

    key: str
    source: str
    about: str
    read: bool
    convention: str = ""
    label: str = ""
    rows: tuple[PublishedRow, ...] = ()


def section(study: Study) -> Section | None:
    tables = published(study.sweep.design.published)
    if not tables:
        return None
    ours = bleu_plot(study)
    return Section("Beside published figures", (NOTE, *(_part(table, ours) for table in tables)))


def published(keys: Sequence[str]) -> list[PublishedTable]:
    """Tables of published.yaml. Raises InputError for a key that is not there."""
    known = yaml.safe_load(files(__package__).joinpath("published.yaml").read_text(encoding="utf-8"))
    for key in keys:
        if key not in known:
            raise InputError(f"study.published={key}: no such table; there are {', '.join(known)}")
    return [
        PublishedTable(key, **known[key] | {"rows": tuple(PublishedRow(**row) for row in known[key].get("rows", ()))})
        for key in keys
    ]


def _part(table: PublishedTable, ours: Plot) -> Section:
    origin = "Read off the paper." if table.read else "Recalled, not read off the paper."
    convention = f" Convention: {table.convention}." if table.convention else ""
    note = f"{capital(table.about)}. {origin}{convention}"
    if not table.rows:
        return Section(table.source, (note,))
    if len(table.rows) == 1:
        return Section(table.source, (note, _table(table)))
    return Section(table.source, (note, _table(table), Plots((_plot(table), ours)), OURS))


def _table(table: PublishedTable) -> Table:
    perplexity = any(row.perplexity is not None for row in table.rows)
    return Table(
        (table.label, *(["perplexity"] if perplexity else []), "BLEU"),
        tuple(
            (str(row.value), *([f"{row.perplexity:.2f}"] if row.perplexity is not None else []), f"{row.bleu:g}")
            for row in table.rows
        ),
    )


def _plot(table: PublishedTable) -> Plot:
    values = [row.value for row in table.rows]
    scale = Scale(values, [str(value) for value in values], table.label)

    def draw(axes: Axes) -> None:
        axes.plot(scale.at, [row.bleu for row in table.rows], marker="s", color=COLOURS[1], linestyle=scale.line)
        scale.apply(axes)
        axes.set_title(f"{table.source.partition(',')[0]}: BLEU, {table.convention.partition(',')[0]}", fontsize=9)

    return plot(f"published_{table.key}", f"BLEU in {table.source}".replace('"', "'"), draw)
