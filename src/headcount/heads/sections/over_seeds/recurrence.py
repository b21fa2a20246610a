"""Recurrence over seeds: how many runs have a head for a phenomenon, and in which layer."""

from collections.abc import Iterator

from headcount.heads.recurrence import SHARE, Specialist, specialist
from headcount.heads.results import Study, Subject
from headcount.heads.sections.over_seeds.summary import count_of, count_row, effects, having, headers, held, placed_of
from headcount.heads.statistics import LOSS
from headcount.report.blocks import Section
from headcount.report.table import Table

FOUND = (
    f"A run has a head for a phenomenon if the removal of one head costs {SHARE:.0%} or more of the margin and "
    "differs from 0 within the run. Intervals (95 %) of the share of runs are exact (Clopper and Pearson 1934); a "
    "run is one observation."
)


def subject(study: Study) -> Subject | None:
    """The number of runs with a head for each phenomenon."""
    rows, tables = having(study, "ablation"), effects(study, "margin")
    names = [name for name in next(iter(tables.values()))[0].columns if name != LOSS] if tables else []
    if not names:
        return None
    found = {label: [specialist(label, own, name) for name in names] for label, own in tables.items()}
    cells = [(name, *(placed_of(own[n].placed) for own in found.values())) for n, name in enumerate(names)]
    titles = ("phenomenon", *headers(study, rows))
    table = Table(titles, tuple(cells), held(study, rows), frozenset(range(len(titles))))
    every = [each for own in found.values() for each in own]
    return Subject(
        Section("How often is there a head for a phenomenon?", (FOUND, table)),
        tuple(count_row(each.row, "recurrence", each.phenomenon, each.placed.count) for each in every),
        tuple(_findings(every, study.label)),
    )


def _findings(found: list[Specialist], label: str) -> Iterator[str]:
    most = max(each.placed.count.runs for each in found)
    often = sorted(found, key=lambda each: -each.placed.count.found / each.placed.count.runs)
    for each in [each for each in often if each.placed.count.found and each.placed.count.runs == most][:2]:
        layer, runs = max(each.placed.layers.items(), key=lambda item: item[1])
        runs_have = count_of(each.placed.count, " runs")
        yield f"{label} {each.row}: {runs_have} have a head for {each.phenomenon}; in {layer} in {runs} of them."
