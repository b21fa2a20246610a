"""Every pair of rows by validation loss, over seeds alone."""

from headcount.evaluation.likelihood import perplexity
from headcount.report.page import Section
from headcount.report.statistics.comparison import Comparison
from headcount.report.study import Study
from headcount.report.table import Table, interval, p_value, pair
from headcount.report.verdicts import counted, deviations, family, pair_verdict, shared, tally


def section(study: Study) -> Section | None:
    loss, within = study.loss, study.margins.loss
    if loss is None or not loss.differences:
        return None
    headers = ("pair", "verdict", "nats", "95 % interval", "p", f"p (equal within {within:g})", "ratio of perplexities")
    table = Table(
        headers,
        tuple(
            (
                pair(difference, study.names),
                pair_verdict(difference, study.names, within, "nats", higher=False),
                f"{difference.value:+.4f}",
                interval(difference.interval, 4),
                p_value(difference.p),
                p_value(difference.p_equal(within)),
                f"{perplexity(difference.value):.3f}",
            )
            for difference in loss.differences
        ),
        note=_note(loss, within),
        words=frozenset({0, 1}),
    )
    return Section("Every pair of rows: validation loss", (table,))


def _note(loss: Comparison, within: float) -> str:
    pairs = tally(counted(loss.differences, within), f"{within:g} nats")
    return (
        f"Secondary. Nats a token; lower is better. Intervals and p-values hold for {family(loss)}, over seeds alone "
        f"(deviation {deviations(loss, 4)} from run to run, {shared(loss)}), on these sentences. {pairs}"
    ).strip()
