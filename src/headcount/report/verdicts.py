"""Verdicts on pairs of rows in words: differ, equal within a margin, inconclusive; and numbers in cells of tables."""

import math
from collections.abc import Sequence

from headcount.statistics.comparison import Comparison, Difference
from headcount.statistics.planning import detectable

ONE_SEED = "With one seed per condition, this holds for these runs only; the spread between seeds is unknown."


def quoted(label: str) -> str:
    """A label in quotation marks if it has a comma, for a sentence."""
    return f'"{label}"' if "," in label else label


def listed(words: Sequence[str]) -> str:
    """Words with commas and "and"."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else ""


def pair_verdict(difference: Difference, labels: Sequence[str], within: float | None, higher: bool = True) -> str:
    """Of a pair of rows, "4 > 1" if 4 is better, or that they are equal or inconclusive. within: the margin of
    equality. higher: whether more is better."""
    if difference.differs:
        rows = (difference.first, difference.second)[:: 1 if (difference.value > 0) == higher else -1]
        small = f", by less than {within:g}" if within and difference.equal(within) else ""
        return " > ".join(labels[row] for row in rows) + small
    return f"equal within {within:g}" if within and difference.equal(within) else "inconclusive"


def tally(differences: Sequence[Difference], within: float) -> str:
    """How many pairs have each verdict."""
    found = [difference.verdict(within) for difference in differences]
    count = {verdict: found.count(verdict) for verdict in ("differ", "equal", "inconclusive")}
    return f"Pairs of conditions: {', '.join(f'{number} {verdict}' for verdict, number in count.items())}."


def summary(comparison: Comparison, labels: Sequence[str], measure: str, within: float) -> str:
    """The row with the highest mean and its verdict against each other row; where it differs from none, no row is
    named, and all pairs are counted. measure: such as test BLEU."""
    if len(labels) < 2:
        return "There is a single condition, so there is nothing to compare."
    best = max(range(len(labels)), key=comparison.means.__getitem__)
    others: dict[str, list[str]] = {"differ": [], "equal": [], "inconclusive": []}
    for pair in comparison.differences:
        if best in (pair.first, pair.second):
            others[pair.verdict(within)].append(quoted(labels[pair.first + pair.second - best]))
    name, mean = quoted(labels[best]), f"{comparison.means[best]:.1f}"
    if not comparison.differences:
        return f"Inconclusive: with one seed each and no text, the error of {measure} is unknown."
    if others["differ"]:
        text = [f"{name} has the highest {measure}, {mean}, and is above {listed(others['differ'])}."]
        if others["equal"]:
            text.append(f"Equal within {within:g} BLEU: {listed(others['equal'])}.")
        if others["inconclusive"]:
            text.append(f"Inconclusive: {listed(others['inconclusive'])}.")
    else:
        some = any(pair.differs for pair in comparison.differences)
        found = "the condition with the highest {} differs from no other" if some else "no two conditions differ in {}"
        equal = all(pair.verdict(within) == "equal" for pair in comparison.differences)
        kind = "Equal" if equal else "Inconclusive"
        text = [f"{kind}: {found.format(measure)}.", tally(comparison.differences, within)]
    return " ".join([*text, *([] if comparison.spread else [ONE_SEED])])


def power(comparison: Comparison) -> str:
    """The smallest differences in BLEU that this study detects; empty if a row has one seed."""
    found = detectable(comparison)
    return f"This study detects {min(found):.1f} to {max(found):.1f} BLEU with a power of 80 %." if found else ""


def deviations(comparison: Comparison, digits: int) -> str:
    """The standard deviation between seeds, or its range over rows."""
    variances = comparison.spread.variances if comparison.spread else ()
    low, high = (f"{end(variances) ** 0.5:.{digits}f}" for end in (min, max))
    return low if low == high else f"{low} to {high}"


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
