"""Published figures on the same question."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files

import yaml

from headcount.errors import InputError
from headcount.report.blocks import Plots, Section
from headcount.report.charts import BESIDE, Rows, chart, dots, hover, layer, number, quantity, whiskers
from headcount.report.plot import COLOURS, Plot
from headcount.report.runs import RunResult
from headcount.report.study import Study
from headcount.report.table import Table
from headcount.report.verdicts import capital

NOTE = (
    "Beside our figures, and not to be subtracted from them: each paper counted BLEU in its own way, on its own test "
    "set. Only the shape can be compared."
)
LEGEND = "Each table in percent of its best row; ours with dots for runs, and 95 % intervals over seeds."
OURS = "this study"


@dataclass(frozen=True)
class PublishedRow:
    """A row of a paper's table."""

    value: str | int
    bleu: float
    perplexity: float | None = None


@dataclass(frozen=True)
class PublishedTable:
    """A table of a paper, or a claim without rows. read: read off the paper, not recalled. constant_width: whether
    heads times their size is the same in all its rows, so that it is of one shape only with such rows of ours."""

    key: str
    source: str
    about: str
    read: bool
    constant_width: bool = False
    convention: str = ""
    label: str = ""
    rows: tuple[PublishedRow, ...] = ()


def section(study: Study) -> Section | None:
    """None if no table has rows: a claim alone has nothing to stand beside our figures."""
    tables = [table for table in published(study.sweep.design.published) if table.rows]
    if not tables:
        return None
    # Rows that are numbers of the same thing share an axis with ours.
    constant = len({_attention_width(run) for run in study.sweep.runs}) == 1
    alike = [
        table
        for table in tables
        if len(table.rows) > 1 and _numbers(row.value for row in table.rows) and (constant or not table.constant_width)
    ]
    drawn = alike and _numbers(row.value for row in study.rows)
    plots = (Plots((_plot(study, alike),), legend=LEGEND),) if drawn else ()
    return Section("Beside published figures", (NOTE, *plots, *map(_part, tables)))


def _attention_width(run: RunResult) -> int | None:
    """Heads times their size; None where the config does not say."""
    heads, size, width = (run.settings.get(f"model.{name}") for name in ("num_heads", "head_size", "d_model"))
    return width if size is None else heads * size if isinstance(heads, int) and isinstance(size, int) else None


def _numbers(values: Iterable[object]) -> bool:
    return all(isinstance(value, int) and not isinstance(value, bool) and value > 0 for value in values)


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


def _part(table: PublishedTable) -> Section:
    origin = "Read off the paper." if table.read else "Recalled, not read off the paper."
    convention = f" Convention: {table.convention}." if table.convention else ""
    return Section(table.source, (f"{capital(table.about)}. {origin}{convention}", _table(table)))


def _table(table: PublishedTable) -> Table:
    perplexity = any(row.perplexity is not None for row in table.rows)
    return Table(
        (table.label, *(["perplexity"] if perplexity else []), "BLEU"),
        tuple(
            (str(row.value), *([f"{row.perplexity:.2f}"] if row.perplexity is not None else []), f"{row.bleu:g}")
            for row in table.rows
        ),
    )


def _plot(study: Study, tables: Sequence[PublishedTable]) -> Plot:
    """Our runs and the tables, each in percent of its best row."""
    bleu, sources = study.endpoint.comparison, [OURS, *(_name(table) for table in tables)]
    rows, theirs = Rows.of(study.sweep), [row for table in tables for row in table.rows]
    values = [*(row.value for row in study.rows), *(row.value for row in theirs)]
    axis = Rows(values, [str(value) for value in values], rows.name)
    best = 100 / max(max(bleu.means), 1e-9)
    runs = [
        run | {"source": OURS, "percent": number(run["value"] * best)}
        for run in rows.runs(study.sweep, study.endpoint.scores)
    ]
    ours = [
        mean | {"source": OURS, "percent": number(mean["value"] * best)}
        | {end: number(mean[end] * best) for end in ("low", "high")}
        for mean in rows.means(bleu)
    ]  # fmt: skip
    means = ours + [
        {"at": row.value, "row": str(row.value), "source": _name(table), "value": row.bleu}
        | {"percent": number(100 * row.bleu / max(each.bleu for each in table.rows))}
        for table in tables
        for row in table.rows
    ]
    scale = {"domain": sources, "range": [COLOURS[index % len(COLOURS)] for index in range(len(sources))]}
    colour = {
        "field": "source",
        "type": "nominal",
        "scale": scale,
        "title": None,
        "legend": {"labelLimit": 300, "columns": 1},
    }
    x, y = axis.x, quantity("percent", "% of the best row's BLEU")
    layers = [
        dots(
            runs, BESIDE, x=x, y=y, color=colour,
            tooltip=hover(row=rows.name, seed="seed", value="BLEU", percent="% of best"),
        ),
        whiskers(ours, x=x, y=y | {"field": "low"}, color=colour),
        layer(
            {"type": "line", "point": {"size": 55}, "strokeWidth": 1.4}, means, x=x, y=y, color=colour,
            tooltip=hover(source="source", row=rows.name, value="BLEU", percent="% of best"),
        ),
    ]  # fmt: skip
    return chart(
        "published", "BLEU in percent of the best row, ours and published", layers, heading="BLEU, % of the best row"
    )


def _name(table: PublishedTable) -> str:
    return f"{table.source.partition(',')[0]}: {table.convention.partition(',')[0]}"
