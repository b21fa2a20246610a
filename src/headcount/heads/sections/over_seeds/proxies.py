"""Gradient importance over seeds: the rank correlation with the true effect of each head, by phenomenon."""

from collections.abc import Iterator, Mapping

from headcount.heads.importance import PROXIES, guide
from headcount.heads.over_seeds import RELIABILITY, SeedMean, rank_correlations
from headcount.heads.results import Row, Study, Subject
from headcount.heads.sections.over_seeds.summary import INTERVALS, having, headers, held, mean_row, text_of
from headcount.heads.sections.proxies import NAMES, NOTE, RANKS
from headcount.heads.statistics import LOSS
from headcount.report.blocks import Section
from headcount.report.table import Table

OVER = (
    "A run gives one Spearman's rank correlation over its heads, a coarse one where heads are few, and one reliability "
    "of the true harm."
)
Found = Mapping[str, Mapping[str, Mapping[str, SeedMean]]]
"""By row, figure and column."""


def subject(study: Study) -> Subject | None:
    """The mean rank correlations of the proxies, and the mean reliability."""
    rows = having(study, "importance", "ablation")
    if not rows:
        return None
    guides = {
        label: [guide(run.parts["importance"], run.parts["ablation"]) for run in own] for label, own in rows.items()
    }
    found: Found = {label: rank_correlations(own) for label, own in guides.items()}
    columns = list(next(iter(found.values()))[PROXIES[0]])
    note = " ".join(filter(None, (INTERVALS, held(study, rows))))
    cells = tuple(
        (words, name, *(text_of(own[figure][name], runs=len(rows[label])) for label, own in found.items()))
        for figure, words in {**NAMES, RELIABILITY: "reliability of the harm"}.items()
        for name in columns
        if any(own[figure][name].runs for own in found.values())
    )
    table = Table(("figure", "harm to", *headers(study, rows)), cells, f"{RANKS} {note}", frozenset({0, 1}))
    section = Section("Is importance by gradient a good guide, over seeds?", (f"{NOTE} {OVER}", table))
    return Subject(section, tuple(_rows(found)), tuple(_findings(found, study.label)))


def _rows(found: Found) -> Iterator[Row]:
    for label, own in found.items():
        for figure, columns in own.items():
            for name, each in columns.items():
                endpoint = f"proxy.{figure}" if figure == RELIABILITY else f"proxy.{figure}.rank"
                if each.runs:
                    yield mean_row(label, endpoint, name, each, "rank correlation")


def _findings(found: Found, label: str) -> Iterator[str]:
    """All rows, since none of them is the one to show."""
    ranks = {row: own[PROXIES[0]] for row, own in found.items() if own[PROXIES[0]][LOSS].runs}
    each = [f"{label} {row}: {text_of(own[LOSS])}{_others(own)}" for row, own in ranks.items()]
    if each:
        yield (
            "Rank correlation over heads of importance for the loss with the harm to the loss, and with the harm to "
            f"phenomena, the least and the most, means over seeds: {'; '.join(each)}."
        )


def _others(own: Mapping[str, SeedMean]) -> str:
    means = [each.mean for name, each in own.items() if name != LOSS and each.runs]
    return f", {min(means):z.2f} to {max(means):z.2f}".replace("-", "−") if means else ""
