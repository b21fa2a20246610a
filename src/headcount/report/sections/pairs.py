"""Every pair of rows: by the primary endpoint, by validation loss, and drawn by any measure."""

from headcount.report.endpoint import Endpoint
from headcount.report.measures import pair_lines
from headcount.report.page import Section, View, markdown_table
from headcount.report.study import Study
from headcount.report.verdicts import deviations, interval, of_difference, p_value, pair_verdict, power, tally
from headcount.report.views import forest
from headcount.statistics.comparison import Comparison
from headcount.statistics.planned import by_one_variance, planned

ONE_VARIANCE = (
    "The column p decides; p (one variance) is for comparison, by one variance of seeds for all conditions, and one of "
    "sentences for all pairs."
)


def contrasts(study: Study) -> Section | None:
    """The contrasts that were named before the runs: a family of their own."""
    bleu, labels = study.endpoint.comparison, study.labels
    if not study.planned or not bleu.differences:
        return None
    named = {name: (labels.index(first), labels.index(second)) for name, (first, second) in study.planned.items()}
    found, pooled = planned(bleu, named), planned(by_one_variance(bleu), named)
    cells = []
    for each, other in zip(found, pooled, strict=True):
        rows = f"{labels[each.first]} − {labels[each.second]}"
        figures = (f"{each.value:+z.2f}", interval(each.interval), p_value(each.p), p_value(other.p))
        cells.append((each.name, rows, *figures))
    note = (
        f"Named before the runs. By {study.endpoint.name}; intervals hold for all planned contrasts at once "
        "(Bonferroni), p-values are by Holm's method."
    )
    headers = ("contrast", "conditions", "difference", "95 % interval", "p", "p (one variance)")
    return Section("Planned contrasts", (note, markdown_table(headers, cells, words=(0, 1)), ONE_VARIANCE))


def pairs(study: Study) -> Section | None:
    bleu, loss, margins = study.endpoint.comparison, study.loss, study.margins
    if not bleu.differences:
        return None
    ends = {"low": "low", "high": "high", "colour": "kind", "choose": "measure"}
    chart = forest(pair_lines(study), label="pair", value="difference", at=0, hover=("verdict",), **ends)
    view = View("differences", f"differences of every pair of conditions by {study.endpoint.name}", chart)
    note = f"{_over(study.endpoint)} {tally(bleu.differences, margins.bleu)} {power(bleu)}"
    blocks: list[str | View] = [view, note.rstrip(), _table(study, bleu, margins.bleu, 2)]
    if loss is not None and loss.differences:
        over = "seeds and corpora" if study.sweep.corpora else "seeds alone, on these sentences"
        deviation = f"deviation {deviations(loss, 4)} from run to run"
        text = f"By validation loss, in nats per token, over {over} ({method(loss)}; {deviation})."
        blocks += [f"{text} {tally(loss.differences, margins.loss)}", _table(study, loss, margins.loss, 4, False)]
    return Section("Every pair of conditions", (*blocks, ONE_VARIANCE))


def method(comparison: Comparison) -> str:
    """The method that makes intervals simultaneous."""
    unlike = comparison.spread is not None and not comparison.spread.alike
    return "studentised range" + (" or Bonferroni's bound, whichever is larger" if unlike else "")


def _table(study: Study, comparison: Comparison, within: float, digits: int, higher: bool = True) -> str:
    """A line for each pair. within: the margin of equality. higher: whether more is better."""
    labels = study.labels
    p = ("p", "p (one variance)", f"p (equal within {within:g})")
    headers = ("pair", "verdict", "difference", "95 % interval", *p)
    cells = [
        (
            f"{labels[each.first]} − {labels[each.second]}",
            pair_verdict(each, labels, within, higher),
            f"{each.value:+z.{digits}f}",
            of_difference(each, digits),
            p_value(each.p),
            p_value(pooled.p),
            p_value(each.p_equal(within)),
        )
        for each, pooled in zip(comparison.differences, by_one_variance(comparison).differences, strict=True)
    ]
    return markdown_table(headers, cells, words=(0, 1))


def _over(endpoint: Endpoint) -> str:
    """The sources of error that the intervals include."""
    bleu, sources = endpoint.comparison, []
    if bleu.spread:
        own = f" and {endpoint.sentences:,} held-out sentences" if endpoint.sentences else ""
        corpora = f", each with a corpus{own} of its own" if endpoint.corpora > 1 else ""
        if endpoint.corpora > 1 and bleu.whole is bleu.spread:
            corpora += ", whose effect on all conditions is included, since a condition lacks a corpus"
        sources.append(f"seeds{corpora} (deviation {deviations(bleu, 2)} BLEU from run to run)")
    if bleu.interaction:
        sources.append(f"the draw of {endpoint.sentences:,} sentences (bootstrap)")
    number = len(bleu.differences)
    return (
        f"By {endpoint.name}. Intervals and p-values hold for all {number} pairs at once ({method(bleu)}), over "
        f"{' and '.join(sources)}."
    )
