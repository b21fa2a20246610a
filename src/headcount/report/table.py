"""Numbers in the cells of a report's tables."""

import math
from collections.abc import Sequence

from headcount.statistics.comparison import Comparison, Difference


def mean(values: Sequence[float], digits: int = 0) -> str:
    return f"{sum(values) / len(values):,.{digits}f}" if values else "–"


def scores(comparison: Comparison, digits: int = 2) -> list[str]:
    """The mean of each row ± half its interval over seeds."""
    halves = [comparison.half_width(row) for row in range(len(comparison.means))]
    return [
        f"{value:.{digits}f}" + (f" ± {half:.{digits}f}" if half is not None else "")
        for value, half in zip(comparison.means, halves, strict=True)
    ]


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
