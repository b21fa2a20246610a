"""Every pair of rows by the primary endpoint, BLEU."""

from headcount.report.endpoint import Endpoint
from headcount.report.page import Section
from headcount.report.study import Study
from headcount.report.table import Table, interval, p_value, pair
from headcount.report.verdicts import deviations, family, needed, pair_verdict, shared


def section(study: Study) -> Section | None:
    bleu, within = study.endpoint.comparison, study.margins.bleu
    if not bleu.differences:
        return None
    table = Table(
        ("pair", "verdict", "difference", "95 % interval", "p", f"p (equal within {within:g})"),
        tuple(
            (
                pair(difference, study.names),
                pair_verdict(difference, study.names, within, "BLEU"),
                f"{difference.value:+.2f}",
                interval(difference.interval),
                p_value(difference.p),
                p_value(difference.p_equal(within)),
            )
            for difference in bleu.differences
        ),
        note=f"{_note(study.endpoint)} {needed(bleu, study.effect, 'BLEU')}".strip(),
        words=frozenset({0, 1}),
    )
    return Section(f"Every pair of rows: {study.endpoint.name}", (table,))


def _note(endpoint: Endpoint) -> str:
    """The sources of error that the intervals include."""
    bleu, sources = endpoint.comparison, []
    if bleu.spread:
        sources.append(f"seeds (deviation {deviations(bleu, 2)} BLEU from run to run, {shared(bleu)})")
    if endpoint.sentences:
        sources.append(f"the draw of {endpoint.sentences:,} sentences (bootstrap)")
    return f"Intervals and p-values hold for {family(bleu)}, over {' and '.join(sources)}."
