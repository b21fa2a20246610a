"""Verdicts on pairs of rows in words: they differ, they are equal within a margin, or nothing is decided."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headcount.report.statistics.comparison import Comparison, Difference, Verdict
from headcount.report.statistics.planning import plans
from headcount.report.study import Row, Sweep

ONE_SEED = "With one seed a row, that holds of these very runs; of seeds nothing is known."


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
        if not self._counted(row):  # "1 rnn" is no number of rnn
            numbered = self.label and re.match(r"\d+ ", self.short(row))
            return f"{self.label} {self.short(row)}" if numbered else self.short(row)
        thing, more = self._things()
        return f"{self.short(row)} {thing[:-1] if self.rows[row].value == 1 else thing}{more}"

    def other(self, row: int) -> str:
        """After another row was named in full: 8 heads beat 1."""
        return self.short(row) if self._counted(row) else self.full(row)

    def plural(self, row: int) -> bool:
        return self._counted(row) and self.rows[row].value != 1

    def verb(self, row: int, plural: str) -> str:
        """`plural` as it stands after this row: 8 heads beat, 1 head beats."""
        ending = "es" if plural.endswith("ch") else "s"
        return plural if self.plural(row) else f"{plural}{ending}"

    def several(self, rows: Sequence[int]) -> str:
        return listed([self.other(row) for row in rows])


def listed(words: Sequence[str]) -> str:
    """Words as a sentence lists them."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else ""


def pair_verdict(difference: Difference, names: Names, within: float, unit: str, higher: bool = True) -> str:
    """One pair of rows. within: the margin of equality, in units such as BLEU. higher: whether more is better."""
    match difference.verdict(within):
        case "differ":
            first, second = difference.first, difference.second
            better, worse = (first, second) if (difference.value > 0) == higher else (second, first)
            small = f", by less than {within:g} {unit}" if difference.equal(within) else ""
            return f"differ: {names.full(better)} {names.verb(better, 'beat')} {names.other(worse)}{small}"
        case "equal":
            return f"equal within {within:g} {unit}"
    return "undecided"


def counted(differences: Sequence[Difference], within: float) -> dict[Verdict, int]:
    """How many pairs have which verdict."""
    found: dict[Verdict, int] = {"differ": 0, "equal": 0, "undecided": 0}
    for difference in differences:
        found[difference.verdict(within)] += 1
    return found


def tally(counts: Mapping[Verdict, int], margin: str) -> str:
    """All pairs in a sentence. margin: of equality, with its unit."""
    words = [
        _count(counts["differ"], "differs", "differ"),
        f"{_count(counts['equal'], 'is', 'are')} equal within {margin}",
        f"{_count(counts['undecided'], 'is', 'are')} undecided",
    ]
    number = sum(counts.values())
    return f"Of {number} pairs of rows, {listed(words)}." if number > 1 else ""


def needed(comparison: Comparison, effect: float, unit: str) -> str:
    """How many seeds a row would see a difference of `effect`, in a sentence with its interval; empty for one row, or
    with one seed a row."""
    known = plans(comparison)
    if known is None or len(comparison.means) < 2:
        return ""
    about, least, most = (plan.seeds_needed(effect) for plan in known)
    if math.isinf(least):
        return f"No number of seeds a row would show a difference of {effect:g} {unit} on these sentences."
    low, high = f"{least:g}", "any number" if math.isinf(most) else f"{most:g}"
    seeds = "More seeds than can be trained" if math.isinf(about) else f"About {about:g} seeds"
    drawn = " The spread of these runs is no larger than the draw of sentences makes it." if known[0].drawn else ""
    return (
        f"{seeds} a row would be needed to see a difference of {effect:g} {unit} four times in five (95 % interval, "
        f"from how well the deviations are known: {low} to {high}).{drawn}"
    )


def summary(comparison: Comparison, names: Names, measure: str, within: float) -> str:
    """What all pairs together say of BLEU, in a sentence or two. measure: such as test BLEU."""
    if len(comparison.means) < 2:
        return "There is a single row, so there is nothing to compare."
    best = max(range(len(comparison.means)), key=comparison.means.__getitem__)
    average = " on average" if comparison.spread else ""
    text = (
        f"{names.full(best)} {names.verb(best, 'reach')} the highest {measure}, {comparison.means[best]:.1f}{average}"
    )
    if not comparison.differences:
        return f"{text}. With one seed a row, and no sentences to draw again, it is unknown how sure that is."
    groups: dict[Verdict, list[int]] = {"differ": [], "equal": [], "undecided": []}
    for difference in comparison.differences:
        if best in (pair := {difference.first, difference.second}):
            groups[difference.verdict(within)] += pair - {best}
    beaten = f", and {names.verb(best, 'beat')} {names.several(groups['differ'])}" if groups["differ"] else ""
    equal = f"Equal within {within:g} BLEU: {names.several(groups['equal'])}." if groups["equal"] else ""
    undecided = f"Undecided against {names.several(groups['undecided'])}." if groups["undecided"] else ""
    pairs = tally(counted(comparison.differences, within), f"{within:g} BLEU")
    hedge = "" if comparison.spread else ONE_SEED
    return " ".join(filter(None, [f"{text}{beaten}.", equal, undecided, pairs, hedge]))


def _count(count: int, one: str, many: str) -> str:
    return f"{count or 'none'} {one if count < 2 else many}"
