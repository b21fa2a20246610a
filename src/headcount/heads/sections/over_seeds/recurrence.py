"""Recurrence over seeds: how many runs have a head for a phenomenon, and in which layer."""

from collections.abc import Iterator, Mapping, Sequence

from headcount.heads.over_seeds import Placed
from headcount.heads.recurrence import SHARE, specialist
from headcount.heads.results import Study, Subject
from headcount.heads.sections.over_seeds.summary import (
    count_row,
    effects,
    having,
    headers,
    held,
    placed_of,
    seeds,
    several,
)
from headcount.heads.statistics import LOSS
from headcount.report.blocks import Section
from headcount.report.table import Table

FOUND = (
    f"A run has a head for a phenomenon if the removal of one head costs {SHARE:.0%} or more of the margin and "
    "differs from 0 within the run, for all heads, columns and runs at once. The only head of a layer is all of the "
    "layer. Intervals (95 %) of the share of runs are exact (Clopper and Pearson 1934), each for itself; a run is "
    "one observation."
)


def subject(study: Study) -> Subject | None:
    """The number of runs with a head for each phenomenon."""
    rows, tables = having(study, "ablation"), effects(study, "margin")
    names = [name for name in next(iter(tables.values()))[0].columns if name != LOSS] if tables else []
    if not names:
        return None
    found = {label: [specialist(own, name) for name in names] for label, own in tables.items()}
    cells = [(name, *(placed_of(own[n]) for own in found.values())) for n, name in enumerate(names)]
    titles = ("phenomenon", *headers(study, rows))
    table = Table(titles, tuple(cells), held(study, rows), frozenset(range(len(titles))))
    return Subject(
        Section("How often is there a head for a phenomenon?", (FOUND, table)),
        tuple(count_row(label, "recurrence", each.role, each.count) for label, own in found.items() for each in own),
        tuple(_findings({row: own for row, own in found.items() if several(rows[row])}, study.label)),
    )


def _findings(found: Mapping[str, Sequence[Placed]], label: str) -> Iterator[str]:
    """All rows, since none of them is the one to show; of one seed nothing recurs."""
    each = []
    for row, own in found.items():
        names = [one.role for one in own if one.count.found == one.count.runs]
        if (runs := own[0].count.runs) > 1:
            each.append(f"{label} {row}: {', '.join(names) or 'none'} ({seeds(runs)})")
    if each:
        yield f"Phenomena that have a head in every run: {'; '.join(each)}."
