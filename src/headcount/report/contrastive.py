"""In which phenomena rows differ, by contrastive accuracy.

metrics.json keeps accuracies, not which pair was won, so that nothing is known of single sentences: differences are
those on these very sentences, over seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headcount.report.statistics.comparison import ERROR, Comparison, compare
from headcount.report.study import Row, at

ALL = "all"  # the mean over phenomena
CEILING = 97.0  # percent


@dataclass(frozen=True)
class Cell:
    """One phenomenon in one grade (or the mean of all), and all rows compared by it.

    pairs: of translations that test it. scores: the accuracy of every run in percent, by row.
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


def contrastive_cells(rows: Sequence[Row]) -> list[Cell]:
    """All phenomena and grades that every run was tested on, then the mean over phenomena of each grade.

    Two families, each with an error of 5 % over all its cells and pairs of rows: the phenomena, and the means. Within a
    cell pairs of rows are compared by the studentised range; over the cells of a family the error is shared out
    (Bonferroni), so that intervals and verdicts agree. Where the seeds of a row differ by less than chance would have
    it, were each run tested on sentences of its own, their variance is taken to be that: near 100 %, a few seeds may
    agree by luck.
    """
    runs = [run for row in rows for run in row.runs]
    trees = [run.figure("test.contrastive") or {} for run in runs]
    found = [
        (phenomenon, grade)
        for phenomenon, grades in trees[0].items()
        for grade in grades
        if all(at(tree, f"{phenomenon}.{grade}.accuracy") is not None for tree in trees)
    ]
    grades = list(dict.fromkeys(grade for _, grade in found))

    def accuracies(phenomenon: str, grade: str) -> list[list[float]]:
        return [row.figures(f"test.contrastive.{phenomenon}.{grade}.accuracy") for row in rows]

    def pairs(phenomenon: str, grade: str) -> int:
        return int(trees[0][phenomenon][grade]["pairs"])

    cells = []
    for phenomenon, grade in found:
        count, scores = pairs(phenomenon, grade), accuracies(phenomenon, grade)
        cells.append(Cell(phenomenon, grade, count, scores, _compare(scores, [count], ERROR / len(found))))
    for grade in grades:
        own = [phenomenon for phenomenon, other in found if other == grade]
        columns = [accuracies(phenomenon, grade) for phenomenon in own]
        means = [
            [sum(column[row][run] for column in columns) / len(own) for run in range(len(rows[row].runs))]
            for row in range(len(rows))
        ]
        counts = [pairs(phenomenon, grade) for phenomenon in own]
        cells.append(Cell(ALL, grade, sum(counts), means, _compare(means, counts, ERROR / len(grades))))
    return cells


def _compare(scores: Sequence[Sequence[float]], pairs: Sequence[int], error: float) -> Comparison:
    """pairs: of each phenomenon whose mean the scores are."""
    least = [_chance(row, pairs) for row in scores]
    return compare(scores, error=error, least=least, bounds=(-100.0, 100.0))


def _chance(row: Sequence[float], pairs: Sequence[int]) -> float:
    """The variance of a run's accuracy in percent, were each run of the row tested on pairs of its own."""
    share = (sum(row) / 100 + 1 / sum(pairs)) / (len(row) + 2 / sum(pairs))
    return 100**2 * share * (1 - share) * sum(1 / count for count in pairs) / len(pairs) ** 2
