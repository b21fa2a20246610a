"""Contrastive accuracy: how often the right translation is more probable than the wrong one, by phenomenon.

metrics.json keeps accuracies, not the result of each pair of translations, so differences are on these sentences, over
seeds.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from headcount.report.blocks import Plots, Section
from headcount.report.charts import BESIDE, INK, MEAN, Rows, Spec, chart, dots, hover, layer, number, quantity, whiskers
from headcount.report.plot import COLOURS, Plot
from headcount.report.runs import Row, finite
from headcount.report.study import Study
from headcount.report.table import Table, interval, p_value, pair
from headcount.report.verdicts import Names, capital, counted, method, tally
from headcount.settings import at
from headcount.statistics.comparison import ERROR, Comparison, compare

ALL = "all"  # the mean over phenomena
CEILING = 97.0  # percent
SMALL = (250, 170)  # pixels
NOTE = "In percent: how often the right translation is more probable than the wrong one; chance is 50 %."
CORRECTED = (
    "Secondary, over {over}. Intervals and p-values hold for all pairs of rows ({method}) in all "
    "phenomena and grades at once (Bonferroni); the means over phenomena are a separate family. Near 100 % a cell "
    "shows no difference."
)


@dataclass(frozen=True)
class Cell:
    """One phenomenon in one grade (or the mean of all), and all rows compared by it.

    pairs: the number of translation pairs that test it. scores: the accuracy of every run in percent, by row.
    """

    phenomenon: str
    grade: str
    pairs: int
    scores: Sequence[Sequence[float]]
    comparison: Comparison

    @property
    def ceiling(self) -> bool:
        """Whether every run is so near to 100 % that rows cannot show a difference."""
        return min(min(row) for row in self.scores) >= CEILING


def section(study: Study) -> Section | None:
    cells = contrastive_cells(study.rows, study.sweep.blocks)
    over = "seeds and corpora" if study.sweep.corpora else "seeds, on these sentences"
    if not cells:
        return None
    within = study.margins.accuracy
    plots = [_plot(study, phenomenon, cells) for phenomenon in dict.fromkeys(cell.phenomenon for cell in cells)]
    note = f"{_verdict(cells, study.names, within)} {NOTE}"
    return Section(
        "Contrastive accuracy", (note, Plots(tuple(plots), small=True), _table(cells, study.names, within, over))
    )


def contrastive_cells(rows: Sequence[Row], blocks: bool = False) -> list[Cell]:
    """All phenomena and grades that every run was tested on, then the mean over phenomena of each grade.

    blocks: whether each seed has a corpus of its own, in every row.

    Two families, each with an error of 5 % over all its cells and pairs of rows: the phenomena, and the means. Within a
    cell, pairs of rows are compared by the studentised range; between the cells of a family the error is divided
    (Bonferroni), so intervals and verdicts agree. The variance of a row over seeds is at least the binomial one, as if
    each run were tested on sentences of its own: near 100 %, a few seeds may agree by luck.
    """
    runs = [run for row in rows for run in row.runs]
    trees = [run.figure("test.contrastive") or {} for run in runs]
    tested = [
        (phenomenon, grade)
        for phenomenon, grades in trees[0].items()
        for grade in (grades if isinstance(grades, dict) else ())
        if all(finite(at(tree, f"{phenomenon}.{grade}.accuracy")) for tree in trees)
        and finite(count := at(trees[0], f"{phenomenon}.{grade}.pairs"))
        and count >= 1
    ]
    grades = list(dict.fromkeys(grade for _, grade in tested))

    def accuracies(phenomenon: str, grade: str) -> list[list[float]]:
        return [row.figures(f"test.contrastive.{phenomenon}.{grade}.accuracy") for row in rows]

    def pairs(phenomenon: str, grade: str) -> int:
        return int(trees[0][phenomenon][grade]["pairs"])

    cells = []
    for phenomenon, grade in tested:
        count, scores = pairs(phenomenon, grade), accuracies(phenomenon, grade)
        cells.append(Cell(phenomenon, grade, count, scores, _compare(scores, [count], ERROR / len(tested), blocks)))
    for grade in grades:
        phenomena = [phenomenon for phenomenon, other in tested if other == grade]
        columns = [accuracies(phenomenon, grade) for phenomenon in phenomena]
        means = [
            [sum(column[row][run] for column in columns) / len(columns) for run in range(len(rows[row].runs))]
            for row in range(len(rows))
        ]
        counts = [pairs(phenomenon, grade) for phenomenon in phenomena]
        cells.append(Cell(ALL, grade, sum(counts), means, _compare(means, counts, ERROR / len(grades), blocks)))
    return cells


def _compare(scores: Sequence[Sequence[float]], pairs: Sequence[int], error: float, blocks: bool) -> Comparison:
    """pairs: of each phenomenon whose mean the scores are."""
    least = [_binomial_variance(row, pairs) for row in scores]
    return compare(scores, error=error, least=least, percent=True, blocks=blocks)


def _binomial_variance(row: Sequence[float], pairs: Sequence[int]) -> float:
    """The variance of a run's accuracy in percent, if each run of the row were tested on pairs of its own."""
    share = (sum(row) / 100 + 1 / sum(pairs)) / (len(row) + 2 / sum(pairs))
    return 100**2 * share * (1 - share) * sum(1 / count for count in pairs) / len(pairs) ** 2


def _plot(study: Study, phenomenon: str, every: Sequence[Cell]) -> Plot:
    """Accuracy by row: a line for each grade, a dot for each run."""
    cells = [cell for cell in every if cell.phenomenon == phenomenon]
    title = "mean of all phenomena" if phenomenon == ALL else phenomenon
    lowest = min(score for cell in every for row in cell.scores for score in row)
    rows = Rows.of(study.sweep)
    runs = [run | {"grade": cell.grade} for cell in cells for run in rows.runs(study.sweep, cell.scores)]
    means = [
        mean | {"grade": cell.grade, "low": max(mean["low"], 0.0), "high": min(mean["high"], 100.0)}
        for cell in cells
        for mean in rows.means(cell.comparison)
    ]
    grades = [cell.grade for cell in cells]
    scale = {"domain": grades, "range": [COLOURS[index % len(COLOURS)] for index in range(len(grades))]}
    colour = {"field": "grade", "type": "nominal", "scale": scale, "title": None}
    x, y = rows.x, quantity("value", scale={"domain": [min(45.0, number(lowest - 5)), 102.0], "nice": False})
    each = hover(row=rows.name, seed="seed", value="accuracy, %", grade="grade")
    seen = hover(row=rows.name, value="mean, %", low="95 % interval from", high="to", grade="grade")
    line: Spec = {"type": "line", "strokeWidth": 1.2, "point": {"size": 45}}
    layers = [
        layer({"type": "rule", "strokeDash": [2, 3], "color": INK}, [{"value": 50}], y=y),
        dots(runs, BESIDE, x=x, y=y, color=colour, tooltip=each),
        whiskers(means, x=x, y=y | {"field": "low"}, color=colour),
        layer(line if rows.logarithmic else MEAN, means, x=x, y=y, color=colour, tooltip=seen),
    ]
    name = "contrastive_" + re.sub(r"\W+", "_", phenomenon)
    return chart(name, f"contrastive accuracy: {title}", layers, heading=f"{title}, %", width=SMALL[0], height=SMALL[1])


def _table(cells: Sequence[Cell], names: Names, within: float, over: str) -> Table:
    """Mean accuracy by row, and the two rows that are furthest apart. within: the margin of equality. over: what the
    intervals are over."""
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
                f"{pair(apart, names)}: {apart.value:+z.1f}" if apart else "–",
                interval(apart.interval, 1) if apart else "–",
                p_value(apart.p) if apart else "–",
                f"{verdicts}{', at the ceiling' if cell.ceiling else ''}" if pairs else "–",
            )
        )
    rows = [names.short(row) for row in range(len(names.rows))]
    headers = ("phenomenon", "grade", *rows, "furthest apart", "95 % interval", "p", "differ / equal / undecided")
    note = CORRECTED.format(over=over, method=method([cell.comparison for cell in cells]))
    return Table(headers, tuple(lines), note, frozenset({0, 1}))


def _verdict(cells: Sequence[Cell], names: Names, within: float) -> str:
    if not any(cell.comparison.differences for cell in cells):
        return "With one seed a row, it is unknown which of these accuracies differ."
    lines = [line for cell in cells if (line := _widest(cell, names))]
    if lines:
        return f"{capital('; '.join(lines))}."
    pairs = [pair for cell in cells for pair in cell.comparison.differences]
    return f"No pair of rows differs in any phenomenon. {tally(counted(pairs, within), f'{within:g} points')}".strip()


def _widest(cell: Cell, names: Names) -> str:
    """The pair of rows that differs most, in words; empty if none differs."""
    pairs = cell.comparison.differences
    differing = [pair for pair in pairs if pair.differs]
    if not differing:
        return ""
    widest = max(differing, key=lambda pair: abs(pair.value))
    better, worse = (widest.first, widest.second)[:: 1 if widest.value > 0 else -1]
    where = "on the mean of all phenomena" if cell.phenomenon == ALL else f"in {cell.phenomenon}"
    low, high = sorted(map(abs, widest.interval))
    others = f" ({len(differing)} of {len(pairs)} pairs differ)" if len(pairs) > 1 else ""
    return (
        f"{where}, {cell.grade}, {names.full(better)} {names.verb(better, 'beat')} {names.other(worse)} by "
        f"{abs(widest.value):.1f} points [{low:.1f}, {high:.1f}]{others}"
    )
