"""Contrastive accuracy: how often the right translation is more probable than the wrong one, by phenomenon.

Accuracies are in metrics.json, the result of each pair is not, so differences are on these sentences, over seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from headcount.report.page import Section, View, markdown_table
from headcount.report.runs import Row, finite
from headcount.report.sections.pairs import method
from headcount.report.study import Study
from headcount.report.verdicts import pair_verdict, tally
from headcount.report.views import forest
from headcount.run.contrasts import DECIDES, MARK
from headcount.settings import at
from headcount.statistics.comparison import ERROR, Comparison, compare

ALL = "mean of all"  # phenomena
NOTE = (
    "In percent: how often the right translation is more probable than the wrong one; chance is 50 %. Verdicts are "
    "secondary, and hold for all pairs of conditions ({method}) in all phenomena and grades at once (Bonferroni), over "
    "{over}; the means over phenomena are a separate family."
)


@dataclass(frozen=True)
class Cell:
    """One phenomenon in one grade (or the mean of all), and all rows compared by it. Pairs of a file are a grade by its
    name; a phenomenon that the target alone decides is marked. scores: the accuracy of every run in percent, by row."""

    phenomenon: str
    grade: str
    scores: Sequence[Sequence[float]]
    comparison: Comparison


def contrastive(study: Study) -> Section | None:
    cells, labels, within = contrastive_cells(study.rows, study.sweep.blocks), study.labels, study.margins.accuracy
    if not cells:
        return None
    lines, shown = [], []
    for cell in cells:
        found, place = cell.comparison, {"phenomenon": cell.phenomenon, "grade": cell.grade}
        for row, (label, mean) in enumerate(zip(labels, found.means, strict=True)):
            half = found.half_width(row) or 0.0
            ends = {"low": max(mean - half, 0.0), "high": min(mean + half, 100.0)}
            lines.append({**place, study.label: label, "accuracy, %": mean, **ends})
        verdicts = [pair_verdict(each, labels, within) for each in found.differences if each.differs]
        means = (f"{mean:.1f}" for mean in found.means)
        shown.append((cell.phenomenon, cell.grade, *means, "; ".join(verdicts) or "–"))
    columns = {"label": "phenomenon", "value": "accuracy, %", "low": "low", "high": "high", "colour": study.label}
    view = View("contrastive", "contrastive accuracy", forest(pd.DataFrame(lines), **columns, choose="grade", at=50))
    over = "seeds and corpora" if study.sweep.corpora else "seeds, on these sentences"
    note = NOTE.format(over=over, method=method(cells[0].comparison))
    pairs = [pair for cell in cells for pair in cell.comparison.differences]
    note += f" {tally(pairs, within)}" if pairs else " With one seed per condition, it is unknown which differ."
    return Section(
        "Contrastive accuracy",
        (note, view, markdown_table(("phenomenon", "grade", *labels, "differ"), shown, words=(0, 1, len(labels) + 2))),
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
        for grade in grades
        if all(finite(at(tree, f"{phenomenon}.{grade}.accuracy")) for tree in trees)
    ]

    def cell(name: str, grade: str, phenomena: Sequence[str], family: int) -> Cell:
        """Of the mean over some phenomena. family: the number of cells that share an error."""
        columns = [[row.figures(f"test.contrastive.{each}.{grade}.accuracy") for row in rows] for each in phenomena]
        scores = [np.mean(of_row, axis=0).tolist() for of_row in zip(*columns, strict=True)]
        counts = [int(trees[0][each][grade]["pairs"]) for each in phenomena]
        floors = [at(tree, f"{name}.{grade}.floor") for tree in trees]
        mark = MARK if all(map(finite, floors)) and np.mean(floors) > DECIDES else ""
        least = [_binomial_variance(row, counts) for row in scores]
        compared = compare(scores, error=ERROR / family, least=least, percent=True, blocks=blocks)
        return Cell(name + mark, grade, scores, compared)

    grades: dict[str, list[str]] = {}
    for phenomenon, grade in tested:
        grades.setdefault(grade, []).append(phenomenon)
    cells = [cell(phenomenon, grade, [phenomenon], len(tested)) for phenomenon, grade in tested]
    return cells + [cell(ALL, grade, phenomena, len(grades)) for grade, phenomena in grades.items()]


def _binomial_variance(row: Sequence[float], pairs: Sequence[int]) -> float:
    """The variance of a run's accuracy in percent, if each run of the row were tested on pairs of its own."""
    share = (sum(row) / 100 + 1 / sum(pairs)) / (len(row) + 2 / sum(pairs))
    return 100**2 * share * (1 - share) * sum(1 / count for count in pairs) / len(pairs) ** 2
