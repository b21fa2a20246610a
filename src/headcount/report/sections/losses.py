"""Every pair of rows by validation loss, over seeds alone."""

from headcount.evaluation.likelihood import perplexity
from headcount.report.blocks import Section
from headcount.report.study import Study
from headcount.report.table import Table, pair_cells
from headcount.report.verdicts import counted, deviations, family, shared, tally


def section(study: Study) -> Section | None:
    loss, within = study.loss, study.margins.loss
    if loss is None or not loss.differences:
        return None
    headers = ("pair", "verdict", "nats", "95 % interval", "p", f"p (equal within {within:g})", "ratio of perplexities")
    pairs = pair_cells(loss, study.names, within, "nats", 4, higher=False)
    ratios = [f"{perplexity(difference.value):.3f}" for difference in loss.differences]
    cells = tuple((*line, ratio) for line, ratio in zip(pairs, ratios, strict=True))
    verdicts = tally(counted(loss.differences, within), f"{within:g} nats")
    over, where = ("seeds and corpora", "") if study.sweep.corpora else ("seeds alone", ", on these sentences")
    note = (
        f"Secondary. Nats a token; lower is better. Intervals and p-values hold for {family(loss)}, over {over} "
        f"(deviation {deviations(loss, 4)} from run to run, {shared(loss)}){where}. {verdicts}"
    )
    return Section("Every pair of rows: validation loss", (Table(headers, cells, note.strip(), frozenset({0, 1})),))
