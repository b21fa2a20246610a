"""Every pair of rows by the primary endpoint, BLEU."""

from headcount.report.blocks import Section
from headcount.report.endpoint import Endpoint
from headcount.report.statistics.comparison import Comparison
from headcount.report.study import Study
from headcount.report.table import Table, interval, p_value, pair
from headcount.report.verdicts import Names, deviations, family, needed, pair_verdict, shared


def section(study: Study) -> Section | None:
    bleu, within = study.endpoint.comparison, study.margins.bleu
    if not bleu.differences:
        return None
    headers = ("pair", "verdict", "difference", "95 % interval", "p", f"p (equal within {within:g})")
    note = f"{_note(study.endpoint)} {needed(bleu, study.effect, 'BLEU')}".strip()
    table = Table(headers, pair_cells(bleu, study.names, within, "BLEU"), note, frozenset({0, 1}))
    return Section(f"Every pair of rows: {study.endpoint.name}", (table,))


def pair_cells(
    comparison: Comparison, names: Names, within: float, unit: str, digits: int = 2, higher: bool = True
) -> tuple[tuple[str, ...], ...]:
    """A line for each pair. within: the margin of equality. higher: whether more is better."""
    return tuple(
        (
            pair(difference, names),
            pair_verdict(difference, names, within, unit, higher),
            f"{difference.value:+z.{digits}f}",
            interval(difference.interval, digits),
            p_value(difference.p),
            p_value(difference.p_equal(within)),
        )
        for difference in comparison.differences
    )


def _note(endpoint: Endpoint) -> str:
    """The sources of error that the intervals include."""
    bleu, sources = endpoint.comparison, []
    if bleu.spread:
        sources.append(f"seeds (deviation {deviations(bleu, 2)} BLEU from run to run, {shared(bleu)})")
    if endpoint.sentences:
        sources.append(f"the draw of {endpoint.sentences:,} sentences (bootstrap)")
    return f"Intervals and p-values hold for {family(bleu)}, over {' and '.join(sources)}."
