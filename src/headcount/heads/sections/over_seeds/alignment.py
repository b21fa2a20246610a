"""Alignment over seeds: how often the head that aligns best is the first of the last layer, and what that costs."""

from collections.abc import Iterator, Mapping

from headcount.heads.over_seeds import Alignments, aligned, alignments
from headcount.heads.results import Row, Study, Subject
from headcount.heads.sections.over_seeds.summary import (
    INTERVALS,
    count_of,
    count_row,
    having,
    headers,
    held,
    mean_row,
    text_of,
)
from headcount.report.blocks import Section
from headcount.report.table import Table

NOTE = (
    "Alignment error rate against the gold alignment (Och and Ney 2003), in percent, by the largest weight of the "
    "position that predicts a word. Best: the cross head with the least error on validation sentences of its run. "
    "First: the first head of the last layer, which Marian and CTranslate2 take by default, in models that were "
    "trained with guided alignment, as these were not. Rule: the same relative place, or a fixed offset. The "
    "difference is paired within runs; its interval is over seeds."
)
ERRORS = {
    "best": "best head",
    "first": "first head of the last layer",
    "mean": "mean of the cross heads",
    "baseline": "best rule without attention",
}
Found = Mapping[str, Alignments]


def subject(study: Study) -> Subject | None:
    """The error of the best head and of the first of the last layer, over the runs of each row."""
    rows = {
        label: crossing
        for label, own in having(study, "gold").items()
        if (crossing := [run for run in own if run.parts["gold"]["right"].shape[2]])
    }
    runs = {label: [aligned(run.parts["gold"]) for run in own] for label, own in rows.items()}
    if not runs:
        return None
    found = {label: alignments(own) for label, own in runs.items()}
    note = " ".join(filter(None, (INTERVALS, held(study, rows))))
    titles = ("error, %", *headers(study, rows))
    table = Table(titles, tuple(_lines(found)), note, frozenset(range(len(titles))))
    section = Section("Which cross head aligns", (NOTE, table))
    return Subject(section, tuple(_rows(found)), tuple(_findings(found, study.label)))


def _lines(found: Found) -> Iterator[tuple[str, ...]]:
    every = found.values()
    for name, words in ERRORS.items():
        yield (words, *(text_of(each.errors[name], 1, 100) for each in every))
    yield ("first less best, points", *(text_of(each.excess, 1, 100) for each in every))
    yield ("runs whose best head is the first of the last layer", *(count_of(each.best) for each in every))
    yield ("share of cross heads that are", *(f"{each.chance:.2f}" for each in every))
    layers = (", ".join(f"{layer} {runs}" for layer, runs in each.layers.items()) for each in every)
    yield ("layer of the best head, runs", *layers)


def _rows(found: Found) -> Iterator[Row]:
    for label, each in found.items():
        for name, mean in {**each.errors, "excess": each.excess}.items():
            yield mean_row(label, "alignment.error", name, mean, "error rate")
        yield count_row(label, "alignment.first_is_best", "best", each.best)


def _findings(found: Found, label: str) -> Iterator[str]:
    best, runs = (sum(getattr(each.best, name) for each in found.values()) for name in ("found", "runs"))
    expected = sum(each.chance * each.best.runs for each in found.values())
    costs = [f"{label} {row}: {text_of(each.excess, 1, 100)}" for row, each in found.items()]
    yield (
        f"The first cross head of the last layer aligns best in {best} of {runs} runs ({expected:.1f} by chance); its "
        f"points of error above the best head: {'; '.join(costs)}."
    )
