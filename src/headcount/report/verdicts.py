"""What comparisons say, in sentences."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headcount.report.statistics import Comparison, Difference
from headcount.report.sweep import Row, Sweep


@dataclass(frozen=True)
class Names:
    """How rows are called: "8 heads" and "1 head" where a study counts something, else by their labels."""

    label: str | None
    rows: Sequence[Row]

    @classmethod
    def of(cls, sweep: Sweep) -> "Names":
        return cls(sweep.study.label, sweep.rows)

    def _counted(self, row: int) -> bool:
        value = self.rows[row].value
        return isinstance(value, int) and not isinstance(value, bool) and self._things()[0].endswith("s")

    def _things(self) -> tuple[str, str]:
        """What is counted, and the words after it: heads, of keys and values."""
        thing, _, more = (self.label or "").partition(" ")
        return thing, f" {more}" if more else ""

    def short(self, row: int) -> str:
        return self.rows[row].label

    def full(self, row: int) -> str:
        if not self._counted(row):
            return self.short(row)
        thing, more = self._things()
        return f"{self.short(row)} {thing[:-1] if self.rows[row].value == 1 else thing}{more}"

    def plural(self, row: int) -> bool:
        return self._counted(row) and self.rows[row].value != 1

    def verb(self, row: int, plural: str) -> str:
        """`plural` as it stands after this row: 8 heads beat, 1 head beats."""
        ending = "es" if plural.endswith("ch") else "s"
        return plural if self.plural(row) else f"{plural}{ending}"

    def several(self, rows: Sequence[int]) -> str:
        return listed([self.short(row) for row in rows])


def listed(words: Sequence[str]) -> str:
    """Words as a sentence lists them."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else ""


def verdict(difference: Difference, comparison: Comparison, names: Names, effect: float, sentences: int | None) -> str:
    """One pair of rows by test BLEU. effect: the difference that one would like to see. sentences: of the test set,
    where they were accounted for."""
    low, high = difference.interval
    first, second = difference.first, difference.second
    seeded = comparison.df > 0
    if difference.differs:
        better, worse = (first, second) if difference.value > 0 else (second, first)
        small, large = sorted(map(abs, (low, high)))
        digits = 1 if small >= 0.05 else 2
        beyond = "" if seeded else ", as far as these very runs go"
        return (
            f"{names.full(better)} {names.verb(better, 'beat')} {names.short(worse)} by "
            f"{abs(difference.value):.{digits}f} BLEU [{small:.{digits}f}, {large:.{digits}f}]{beyond}."
        )
    counts = sorted({comparison.counts[first], comparison.counts[second]}, reverse=True)
    seeds = f"{' and '.join(map(str, counts))} {'seed' if counts == [1] else 'seeds'}"
    told = f"{names.short(first)} and {names.short(second)} can't be told apart with {seeds}"
    need = comparison.seeds_needed(effect)
    if need is None:
        return f"{told}, and of other seeds nothing is known."
    needed, least = need
    if math.isinf(least):
        reason = f"the test set of {sentences:,} sentences is too small for that" if sentences else "they vary too much"
        return f"{told}: no number of seeds would be enough to see {effect:g}, since {reason}."
    if math.isinf(needed):
        return f"{told}: {least:g} or more would be needed to see {effect:g}, and perhaps a larger test set."
    if needed <= min(counts):
        return f"{told}, which would be enough to see {effect:g} four times in five."
    return f"{told}: about {needed:g} would be needed to see {effect:g}."


def summary(comparison: Comparison, names: Names) -> str:
    """What all pairs together say of test BLEU, in a sentence or two."""
    if len(comparison.means) < 2:
        return "There is a single row, so there is nothing to compare."
    best = max(range(len(comparison.means)), key=comparison.means.__getitem__)
    mean = f"{comparison.means[best]:.1f}"
    if not comparison.differences:
        return (
            f"{names.full(best)} {names.verb(best, 'reach')} the highest test BLEU, {mean}. With one seed a row, and "
            "no sentences to draw again, nothing says how sure that is."
        )
    told = [difference for difference in comparison.differences if difference.differs]
    hedge = "" if comparison.df else " With one seed a row, that holds of these very runs; of seeds nothing is known."
    if not told:
        low = min(comparison.means)
        margin = max(difference.margin for difference in comparison.differences)
        what = "The two rows" if len(comparison.means) == 2 else f"No two of the {len(comparison.means)} rows"
        can = "can't" if len(comparison.means) == 2 else "can"
        return (
            f"{what} {can} be told apart by test BLEU: the means lie between {low:.1f} and {mean}, and a difference is "
            f"known to ± {margin:.1f} only.{hedge}"
        )
    beaten = [row for row in range(len(comparison.means)) if _pair(told, best, row)]
    alike = [row for row in range(len(comparison.means)) if row != best and row not in beaten]
    text = f"{names.full(best)} {names.verb(best, 'reach')} the highest test BLEU, {mean} on average"
    if beaten:
        text += f", and {names.verb(best, 'beat')} {names.several(beaten)}"
    if alike:
        text += f"; from {names.several(alike)} {'they' if names.plural(best) else 'it'} can't be told apart"
    count = len(comparison.differences)
    pairs = f" Of {count} pairs of rows, {len(told)} {_differ(len(told))}." if count > 1 else ""
    return f"{text}.{pairs}{hedge}"


def _differ(count: int) -> str:
    return "differs" if count == 1 else "differ"


def _pair(differences: Sequence[Difference], first: int, second: int) -> bool:
    return any({difference.first, difference.second} == {first, second} for difference in differences)
