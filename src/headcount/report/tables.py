"""Tables of a report, the same for Markdown and HTML, and results.csv."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tabulate import tabulate

from headcount.report.contrastive import ALL, Cell
from headcount.report.lengths import LengthGroup
from headcount.report.published import Published
from headcount.report.statistics import Comparison
from headcount.report.sweep import Sweep, flatten, say
from headcount.report.verdicts import Names, verdict

COLUMNS = (
    "parameters", "operations_per_token", "train.steps", "train.seconds", "train.tokens_per_second", "valid.loss",
    "valid.ppl", "valid.bleu", "test.loss", "test.ppl", "test.bleu", "test.chrf", "test.signature.bleu",
    "test.signature.chrf",
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Headers and cells as text. words: the columns that hold words, set to the left."""

    headers: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    words: frozenset[int] = frozenset({0})

    @property
    def markdown(self) -> str:
        align = ["left" if column in self.words else "right" for column in range(len(self.headers))]
        escaped = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in self.cells]
        return tabulate(escaped, headers=self.headers, tablefmt="pipe", disable_numparse=True, colalign=align)


def result_table(sweep: Sweep, bleu: Comparison, chrf: Comparison, perplexity: Comparison | None) -> Table:
    """A line a row: what it cost and what it reached."""
    cells = []
    for index, row in enumerate(sweep.rows):
        cells.append(
            (
                row.label,
                " ".join(str(run.seed) for run in row.runs),
                _mean(row.figures("parameters")),
                _mean(row.figures("operations_per_token")),
                _mean(row.figures("train.tokens_per_second")),
                _mean(row.figures("train.seconds")),
                _score(perplexity, index, 3) if perplexity else "–",
                _score(bleu, index),
                _score(chrf, index),
            )
        )
    headers = (
        "seeds",
        "parameters",
        "operations/token",
        "tokens/s",
        "seconds",
        "valid. perplexity",
        "test BLEU",
        "test chrF",
    )
    return Table((sweep.study.label or "row", *headers), tuple(cells), frozenset({0, 1}))


def _mean(values: Sequence[float]) -> str:
    return f"{sum(values) / len(values):,.0f}" if values else "–"


def _score(comparison: Comparison, row: int, digits: int = 2) -> str:
    margin = comparison.margin(row)
    return f"{comparison.means[row]:.{digits}f}" + (f" ± {margin:.{digits}f}" if margin is not None else "")


def pair_table(bleu: Comparison, names: Names, effect: float, sentences: int | None) -> Table:
    """Every pair of rows by test BLEU."""
    return Table(
        ("pair", "verdict", "difference", "95 % interval", "p"),
        tuple(
            (
                f"{names.short(pair.first)} − {names.short(pair.second)}",
                verdict(pair, bleu, names, effect, sentences),
                f"{pair.value:+.2f}",
                _interval(pair.interval),
                _p(pair.p),
            )
            for pair in bleu.differences
        ),
        frozenset({0, 1}),
    )


def perplexity_table(perplexity: Comparison, names: Names) -> Table:
    """Every pair of rows by validation perplexity, over seeds alone."""
    return Table(
        ("pair", "difference", "95 % interval", "p"),
        tuple(
            (
                f"{names.short(pair.first)} − {names.short(pair.second)}",
                f"{pair.value:+.3f}",
                _interval(pair.interval, 3),
                _p(pair.p) + (" *" if pair.differs else ""),
            )
            for pair in perplexity.differences
        ),
    )


def contrastive_table(cells: Sequence[Cell], names: Names) -> Table:
    """Mean accuracy by row, and the pair of rows that lies furthest apart for its error."""
    lines = []
    for cell in cells:
        pairs = cell.comparison.differences
        apart = max(pairs, key=lambda pair: abs(pair.value), default=None)
        told = sum(pair.differs for pair in pairs)
        lines.append(
            (
                "mean of all" if cell.phenomenon == ALL else cell.phenomenon,
                cell.grade,
                *(f"{mean:.1f}" for mean in cell.comparison.means),
                f"{names.short(apart.first)} − {names.short(apart.second)}: {apart.value:+.1f}" if apart else "–",
                _interval(apart.interval, 1) if apart else "–",
                _p(apart.p) if apart else "–",
                f"{told} of {len(pairs)}" if pairs else "–",
            )
        )
    rows = [names.short(row) for row in range(len(names.rows))]
    headers = ("phenomenon", "grade", *rows, "furthest apart", "95 % interval", "p", "pairs that differ")
    return Table(headers, tuple(lines), frozenset({0, 1}))


def length_table(groups: Sequence[LengthGroup], names: Names) -> Table:
    """A line a group of sentences, a column a row."""
    rows = range(len(names.rows))
    return Table(
        ("tokens", "sentences", *(names.short(row) for row in rows)),
        tuple(
            (group.label, str(group.sentences), *(_score(group.comparison, row) for row in rows)) for group in groups
        ),
    )


def published_table(table: Published) -> Table:
    """A paper's rows."""
    perplexity = any(row.perplexity is not None for row in table.rows)
    headers = (table.label, *(["perplexity"] if perplexity else []), "BLEU")
    return Table(
        headers,
        tuple(
            (str(row.value), *([f"{row.perplexity:.2f}"] if row.perplexity is not None else []), f"{row.bleu:g}")
            for row in table.rows
        ),
    )


def differing_table(sweep: Sweep) -> Table:
    """Settings in which runs differ, and their value in each row."""
    cells = []
    for name in sweep.differing:
        values = [list(dict.fromkeys(say(run.settings.get(name)) for run in row.runs)) for row in sweep.rows]
        cells.append((name, *(" or ".join(own) for own in values)))
    return Table(("setting", *(row.label for row in sweep.rows)), tuple(cells))


def results_csv(sweep: Sweep) -> str:
    """A line for every run, the unfinished too; a column for every figure that a run has."""
    phenomena = sorted(
        {
            f"test.contrastive.{name}"
            for run in sweep.runs
            for name in flatten(run.figure("test.contrastive") or {})
            if name.endswith(".accuracy")
        }
    )
    columns = [*COLUMNS, *phenomena]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", "row", "seed", "finished", *columns])
    for row in sweep.rows:
        for run in row.runs:
            figures = [run.figure(column) for column in columns]
            writer.writerow([run.name, row.label, run.seed, "yes", *("" if v is None else v for v in figures)])
    for job in sweep.unfinished:
        writer.writerow([job.name, "", "", "no", *[""] * len(columns)])
    return text.getvalue()


def _interval(interval: tuple[float, float], digits: int = 2) -> str:
    return f"[{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]"


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{min(math.ceil(p * 1000) / 1000, 1):.3f}" if p < 0.05 else f"{p:.3f}"
