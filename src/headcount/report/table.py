"""Tables of a report, and the numbers in their cells."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tabulate import tabulate

from headcount.report.verdicts import Names, pair_verdict
from headcount.statistics.comparison import Comparison, Difference


@dataclass(frozen=True)
class Table:
    """Headers and cells as text. note: a paragraph below. words: the columns of text, aligned to the left. runs: the
    names of the runs that the lines are of, if they are; on a page, marks of runs lead there."""

    headers: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    note: str = ""
    words: frozenset[int] = frozenset({0})
    runs: tuple[str, ...] = ()

    @property
    def markdown(self) -> str:
        align = ["left" if column in self.words else "right" for column in range(len(self.headers))]
        escaped = [[_shown(cell) for cell in row] for row in self.cells]
        headers = [_shown(header) for header in self.headers]
        return tabulate(escaped, headers=headers, tablefmt="pipe", disable_numparse=True, colalign=align)


def _shown(cell: str) -> str:
    """Text that Markdown shows unchanged in a cell: no tag, link or code begins in it."""
    return re.sub(r"[\\|`*]|(?<!\w)_|_(?!\w)|<(?=[a-zA-Z/!?])|\](?=[(\[:])", r"\\\g<0>", cell).replace("\n", " ")


def mean(values: Sequence[float], digits: int = 0) -> str:
    return f"{sum(values) / len(values):,.{digits}f}" if values else "–"


def score(comparison: Comparison, row: int, digits: int = 2) -> str:
    """The mean of a row ± half its interval over seeds."""
    half = comparison.half_width(row)
    return f"{comparison.means[row]:.{digits}f}" + (f" ± {half:.{digits}f}" if half is not None else "")


def pair(difference: Difference, names: Names) -> str:
    return f"{names.short(difference.first)} − {names.short(difference.second)}"


def interval(ends: tuple[float, float], digits: int = 2) -> str:
    return f"[{ends[0]:z.{digits}f}, {ends[1]:z.{digits}f}]"


def of_difference(difference: Difference, digits: int = 2) -> str:
    """The interval of a difference, with as many digits as it takes to see that it leaves 0 out."""
    nearest = min(map(abs, difference.interval))
    if difference.differs and nearest > 0:
        digits = max(digits, min(6, math.ceil(-math.log10(2 * nearest))))
    return interval(difference.interval, digits)


def p_value(p: float) -> str:
    """Rounded up where it is significant, so that no p of 0.05 looks smaller."""
    if p < 0.001 or p >= 0.05:
        return "< 0.001" if p < 0.001 else f"{p:.3f}"
    return f"{math.ceil(p * 1000) / 1000:.3f}" if p <= 0.049 else "< 0.050"


def pair_cells(
    comparison: Comparison, names: Names, within: float, unit: str, digits: int = 2, higher: bool = True
) -> tuple[tuple[str, ...], ...]:
    """A line for each pair. within: the margin of equality. higher: whether more is better."""
    return tuple(
        (
            pair(difference, names),
            pair_verdict(difference, names, within, unit, higher),
            f"{difference.value:+z.{digits}f}",
            of_difference(difference, digits),
            p_value(difference.p),
            p_value(difference.p_equal(within)),
        )
        for difference in comparison.differences
    )
