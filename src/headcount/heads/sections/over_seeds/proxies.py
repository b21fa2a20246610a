"""Gradient importance over seeds: the rank correlation with the true effect of each head, by phenomenon."""

from collections.abc import Iterator, Mapping

from headcount.heads.importance import PROXIES, guide
from headcount.heads.over_seeds import SeedMean, rank_correlations
from headcount.heads.results import Row, Study, Subject
from headcount.heads.sections.over_seeds.summary import INTERVALS, forest, having, headers, held, mean_row, text_of
from headcount.heads.sections.proxies import NAMES
from headcount.heads.statistics import LOSS
from headcount.report.blocks import Plots, Section
from headcount.report.table import Table

NOTE = (
    "Spearman's rank correlation, over the heads of a run, of a proxy on validation sentences with the harm of "
    "removing each head on test sentences. A run gives one correlation, a coarse one where heads are few. Noise of "
    "small effects lowers it."
)
Found = Mapping[str, Mapping[str, Mapping[str, SeedMean]]]
"""By row, proxy and column."""


def subject(study: Study) -> Subject | None:
    """The mean rank correlations of both proxies."""
    rows = having(study, "importance", "ablation")
    if not rows:
        return None
    guides = {
        label: [guide(run.parts["importance"], run.parts["ablation"], draws=2) for run in own]
        for label, own in rows.items()
    }
    found: Found = {label: rank_correlations(own) for label, own in guides.items()}
    columns = list(next(iter(found.values()))[PROXIES[0]])
    drawn = {f"{study.label} {label}": own[PROXIES[0]] for label, own in found.items()}
    picture = forest(
        "proxies",
        "rank correlation of gradient importance with the true effect, over seeds",
        drawn,
        columns,
        0,
        "rank correlation",
    )
    note = " ".join(filter(None, (INTERVALS, held(study, rows))))
    cells = tuple(
        (NAMES[proxy], name, *(text_of(own[proxy][name], runs=len(rows[label])) for label, own in found.items()))
        for proxy in PROXIES
        for name in columns
    )
    table = Table(("proxy", "column", *headers(study, rows)), cells, note, frozenset({0, 1}))
    section = Section("Is importance by gradient a good guide, over seeds?", (NOTE, Plots((picture,)), table))
    return Subject(section, tuple(_rows(found)), tuple(_findings(found, study.label)))


def _rows(found: Found) -> Iterator[Row]:
    for label, own in found.items():
        for proxy, columns in own.items():
            for name, each in columns.items():
                yield mean_row(label, f"proxy.{proxy}.rank", name, each, "rank correlation")


def _findings(found: Found, label: str) -> Iterator[str]:
    row = max(found, key=lambda row: found[row][PROXIES[0]][LOSS].runs)
    own = {name: each for name, each in found[row][PROXIES[0]].items() if each.runs}
    if LOSS in own:
        least = min(own, key=lambda name: own[name].mean)
        text = (
            f"{label} {row}: gradient importance and true effect have a rank correlation over heads of "
            f"{text_of(own[LOSS])} for the loss (mean over seeds)"
        )
        yield f"{text}, of {text_of(own[least])} for {least}." if least != LOSS else f"{text}."
