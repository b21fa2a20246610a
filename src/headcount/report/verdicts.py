"""Verdicts on pairs of rows in words: differ, equal within a margin, or undecided."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headcount.report.runs import Row, Sweep
from headcount.statistics.comparison import Comparison, Difference, Verdict
from headcount.statistics.planning import detectable, plans
from headcount.statistics.variances import PairedSpread

ONE_SEED = "With one seed a row, this holds for these runs only; the spread between seeds is unknown."


@dataclass(frozen=True)
class Names:
    """Names of rows: "8 heads" and "1 head" if the study varies a count, else their labels; `title` by itself, `full`
    in a sentence."""

    label: str | None
    rows: Sequence[Row]

    @classmethod
    def of(cls, sweep: Sweep) -> "Names":
        return cls(sweep.design.label, sweep.rows)

    def _counted(self, row: int) -> bool:
        value = self.rows[row].value
        return isinstance(value, int) and not isinstance(value, bool) and self._things()[0].endswith("s")

    def _things(self) -> tuple[str, str]:
        """The thing that is counted, and the words after it: heads, of keys and values."""
        thing, _, more = (self.label or "").partition(" ")
        return thing, f" {more}" if more else ""

    def short(self, row: int) -> str:
        return self.rows[row].label

    def title(self, row: int) -> str:
        if not self._counted(row):  # "1 rnn" is not a count
            label = self.short(row)
            return f"{self.label} {label}" if self.label and re.match(r"\d+ ", label) else label
        thing, more = self._things()
        return f"{self.short(row)} {thing[:-1] if self.rows[row].value == 1 else thing}{more}"

    def full(self, row: int) -> str:
        return quoted(self.title(row))

    def other(self, row: int) -> str:
        """The name after another row was named in full: 8 heads beat 1."""
        return self.short(row) if self._counted(row) else self.full(row)

    def plural(self, row: int) -> bool:
        return self._counted(row) and self.rows[row].value != 1

    def verb(self, row: int, plural: str) -> str:
        """The form of the verb `plural` after this row: 8 heads beat, 1 head beats."""
        ending = "es" if plural.endswith("ch") else "s"
        return plural if self.plural(row) else f"{plural}{ending}"

    def several(self, rows: Sequence[int]) -> str:
        return listed([self.other(row) for row in rows])


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def quoted(label: str) -> str:
    """A label in quotation marks if it has a comma, for a sentence."""
    return f'"{label}"' if "," in label else label


def listed(words: Sequence[str]) -> str:
    """Words with commas and "and"."""
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
    """The number of pairs with each verdict."""
    numbers: dict[Verdict, int] = {"differ": 0, "equal": 0, "undecided": 0}
    for difference in differences:
        numbers[difference.verdict(within)] += 1
    return numbers


def tally(counts: Mapping[Verdict, int], margin: str) -> str:
    """The counts in a sentence. margin: of equality, with its unit."""
    words = [
        _count(counts["differ"], "differs", "differ"),
        f"{_count(counts['equal'], 'is', 'are')} equal within {margin}",
        f"{_count(counts['undecided'], 'is', 'are')} undecided",
    ]
    number = sum(counts.values())
    return f"Of {number} pairs of rows, {listed(words)}." if number > 1 else ""


def needed(comparison: Comparison, effect: float, unit: str) -> str:
    """The smallest differences that this study detects, and the seeds per row that detect one of `effect`, with an
    interval; empty for one row, or one seed a row."""
    known = plans(comparison)
    if known is None or len(comparison.means) < 2:
        return ""
    power = ""
    if found := detectable(comparison):
        low, high = (f"{end(found):.1f}" for end in (min, max))
        power = (
            f"A power of 80 %, simulated with the deviations of these rows, is reached for differences of {low}"
            f"{f' to {high}' if high > low else ''} {unit}{', by the pair,' if high > low else ''} with as many seeds "
            "as here. "
        )
    about, least, most = (plan.seeds_needed(effect) for plan in known)
    if math.isinf(least):
        return f"{power}For {effect:g} {unit} no number of seeds is enough on these sentences."
    low, high = f"{least:g}", "any number" if math.isinf(most) else f"{most:g}"
    wanted = "more seeds a row than can be trained" if math.isinf(about) else f"about {about:g} seeds a row"
    explained = known[0].sampling_explains_all
    drawn = " The draw of sentences alone explains the spread of these runs." if explained else ""
    return (
        f"{power}For {effect:g} {unit} it takes, if all rows vary alike, {wanted} (95 % interval, since the "
        f"deviations are estimates: {low} to {high}).{drawn}"
    )


def summary(comparison: Comparison, names: Names, measure: str, within: float) -> str:
    """The best row and its verdict against each other row, in a few sentences; no best row if it differs from none.
    measure: such as test BLEU."""
    if len(comparison.means) < 2:
        return "There is a single row, so there is nothing to compare."
    best = max(range(len(comparison.means)), key=comparison.means.__getitem__)
    low, high = min(comparison.means), comparison.means[best]
    average = " on average" if comparison.spread else ""
    text = (
        f"{names.full(best)} {names.verb(best, 'reach')} the highest {measure}, {comparison.means[best]:.1f}{average}"
    )
    if not comparison.differences:
        return f"{text}. With one seed a row and no text for a bootstrap, the error of this is unknown."
    groups: dict[Verdict, list[int]] = {"differ": [], "equal": [], "undecided": []}
    for difference in comparison.differences:
        if best in (pair := {difference.first, difference.second}):
            groups[difference.verdict(within)] += pair - {best}
    pairs = tally(counted(comparison.differences, within), f"{within:g} BLEU")
    hedge = "" if comparison.spread else ONE_SEED
    if not groups["differ"]:
        whole = names.full(best) if any(each.differs for each in comparison.differences) else ""
        none = f"No row differs from {whole}, the highest," if whole else "No rows differ"
        only = "" if pairs else f"They are {pair_verdict(comparison.differences[0], names, within, 'BLEU')}."
        text = f"{none} by {measure}; {'means over seeds' if average else 'scores'} are {low:.1f} to {high:.1f}."
        return " ".join(filter(None, [text, only, pairs, hedge]))
    beaten = f", and {names.verb(best, 'beat')} {names.several(groups['differ'])}"
    equal = f"Equal within {within:g} BLEU: {names.several(groups['equal'])}." if groups["equal"] else ""
    undecided = f"Undecided against {names.several(groups['undecided'])}." if groups["undecided"] else ""
    return " ".join(filter(None, [f"{text}{beaten}.", equal, undecided, pairs, hedge]))


def _count(count: int, one: str, many: str) -> str:
    return f"{count or 'none'} {one if count < 2 else many}"


def family(comparison: Comparison) -> str:
    """The pairs for which intervals hold at once, and the method."""
    pairs = len(comparison.differences)
    return f"{'the one pair' if pairs == 1 else f'all {pairs} pairs at once'} ({method([comparison])})"


def method(comparisons: Sequence[Comparison]) -> str:
    """The method that makes intervals simultaneous."""
    unlike = any(comparison.spread and not comparison.spread.alike for comparison in comparisons)
    return "studentised range" + (" or Bonferroni's bound, whichever is larger" if unlike else "")


def deviations(comparison: Comparison, digits: int) -> str:
    """The standard deviation between seeds, or its range over rows."""
    variances = comparison.spread.variances if comparison.spread else ()
    low, high = (f"{end(variances) ** 0.5:.{digits}f}" for end in (min, max))
    return low if low == high else f"{low} to {high}"


def shared(comparison: Comparison) -> str:
    """Whether rows share the deviation between seeds."""
    if comparison.spread is None or comparison.spread.alike:
        known = set(comparison.spread.variances) if comparison.spread else set()
        more = ", but for rows that varied more" if len(known) > 1 else ""
        return f"the same for all rows{more}, which a test of equal variances does not reject"
    of = "pair of rows" if isinstance(comparison.spread, PairedSpread) else "row"
    return f"a moderated one for each {of}"
