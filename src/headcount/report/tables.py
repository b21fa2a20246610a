"""Tables of a report, the same for Markdown and HTML, and results.csv."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tabulate import tabulate

from headcount.evaluation.likelihood import perplexity
from headcount.report.contrastive import ALL, Cell
from headcount.report.endpoint import Endpoint
from headcount.report.lengths import LengthGroup
from headcount.report.published import Published
from headcount.report.rows import say
from headcount.report.statistics.comparison import Comparison, Difference
from headcount.report.study import Sweep, flatten
from headcount.report.verdicts import Names, counted, pair_verdict

COLUMNS = (
    "parameters", "operations_per_token", "train.steps", "train.seconds", "train.tokens_per_second", "valid.loss",
    "valid.ppl", "valid.bleu", "valid.length_ratio", "test.loss", "test.ppl", "test.bleu", "test.chrf",
    "test.length_ratio", "test.signature.bleu", "test.signature.chrf", "weights.scored", "weights.valid_loss.average",
    "weights.valid_loss.last",
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


def result_table(sweep: Sweep, endpoint: Endpoint, chrf: Comparison, loss: Comparison | None) -> Table:
    """A line a row: what it cost and what it reached."""
    splits = endpoint.splits if len(endpoint.splits) > 1 else ()
    cells = []
    for index, row in enumerate(sweep.rows):
        ratio = endpoint.length_ratio(index, row)
        cells.append(
            (
                row.label,
                " ".join(str(run.seed) for run in row.runs),
                _mean(row.figures("parameters")),
                _mean(row.figures("operations_per_token")),
                _mean(row.figures("train.tokens_per_second")),
                _mean(row.figures("train.seconds")),
                _score(loss, index, 3) if loss else "–",
                f"{perplexity(loss.means[index]):.3f}" if loss else "–",
                _score(endpoint.comparison, index),
                "–" if ratio is None else f"{ratio:.3f}",
                *(_mean(row.figures(f"{split}.bleu"), 2) for split in splits),
                _score(chrf, index),
            )
        )
    headers = (
        "seeds",
        "parameters",
        "operations/token",
        "tokens/s",
        "seconds",
        "valid. loss",
        "valid. perplexity",
        endpoint.name,
        "length ratio",
        *(f"{split} BLEU" for split in splits),
        "test chrF",
    )
    return Table((sweep.study.label or "row", *headers), tuple(cells), frozenset({0, 1}))


def _mean(values: Sequence[float], digits: int = 0) -> str:
    return f"{sum(values) / len(values):,.{digits}f}" if values else "–"


def _score(comparison: Comparison, row: int, digits: int = 2) -> str:
    margin = comparison.margin(row)
    return f"{comparison.means[row]:.{digits}f}" + (f" ± {margin:.{digits}f}" if margin is not None else "")


def pair_table(bleu: Comparison, names: Names, within: float) -> Table:
    """Every pair of rows by BLEU. within: the margin of equality."""
    return Table(
        ("pair", "verdict", "difference", "95 % interval", "p", f"p (equal within {within:g})"),
        tuple(
            (
                _pair(pair, names),
                pair_verdict(pair, names, within, "BLEU"),
                f"{pair.value:+.2f}",
                _interval(pair.interval),
                _p(pair.p),
                _p(pair.p_equal(within)),
            )
            for pair in bleu.differences
        ),
        frozenset({0, 1}),
    )


def loss_table(loss: Comparison, names: Names, within: float) -> Table:
    """Every pair of rows by validation loss, over seeds alone."""
    return Table(
        ("pair", "verdict", "nats", "95 % interval", "p", f"p (equal within {within:g})", "ratio of perplexities"),
        tuple(
            (
                _pair(pair, names),
                pair_verdict(pair, names, within, "nats", higher=False),
                f"{pair.value:+.4f}",
                _interval(pair.interval, 4),
                _p(pair.p),
                _p(pair.p_equal(within)),
                f"{perplexity(pair.value):.3f}",
            )
            for pair in loss.differences
        ),
        frozenset({0, 1}),
    )


def _pair(pair: Difference, names: Names) -> str:
    return f"{names.short(pair.first)} − {names.short(pair.second)}"


def contrastive_table(cells: Sequence[Cell], names: Names, within: float) -> Table:
    """Mean accuracy by row, and the pair of rows that lies furthest apart. within: the margin of equality."""
    lines = []
    for cell in cells:
        pairs = cell.comparison.differences
        apart = max(pairs, key=lambda pair: abs(pair.value), default=None)
        verdicts = " / ".join(map(str, counted(pairs, within).values()))
        lines.append(
            (
                "mean of all" if cell.phenomenon == ALL else cell.phenomenon,
                cell.grade,
                *(f"{mean:.1f}" for mean in cell.comparison.means),
                f"{_pair(apart, names)}: {apart.value:+.1f}" if apart else "–",
                _interval(apart.interval, 1) if apart else "–",
                _p(apart.p) if apart else "–",
                f"{verdicts}{', at the ceiling' if cell.ceiling else ''}" if pairs else "–",
            )
        )
    rows = [names.short(row) for row in range(len(names.rows))]
    headers = (
        "phenomenon",
        "grade",
        *rows,
        "furthest apart",
        "95 % interval",
        "p",
        "differ / equal / undecided",
    )
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
