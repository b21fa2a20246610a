"""Roles over seeds: how many runs have a head for each role, and in which layer."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from headcount.heads.claims import PHENOMENA
from headcount.heads.interface import KINDS, heads_named
from headcount.heads.over_seeds import Placed, SeedMean, placed, seed_mean
from headcount.heads.results import Results, Row, Study, Subject
from headcount.heads.roles import NEAR, measure_means, positional_heads
from headcount.heads.sections.over_seeds.summary import (
    Rows,
    count_row,
    having,
    headers,
    held,
    mean_row,
    placed_of,
    text_of,
)
from headcount.report.blocks import Section
from headcount.report.table import Table
from headcount.statistics.bootstrap import Floats

NOTE = (
    "The number of runs with at least one head that has the role, with the 95 % interval of the share of runs (Clopper "
    "and Pearson 1934), and the runs with such a head in each layer. A role of a link is claimed only where the head "
    "follows gold links beyond all baselines and its phenomenon suffers without the head; follows: the first alone."
)
POSITIONAL = (
    "Positional heads: 90 % or more of the maxima are at one offset (Voita et al. 2019). Offsets of cross heads are to "
    "the position of the word that they predict."
)
SPANS = (
    "The least and the most of all heads of a kind in a run, between pieces; each is a mean over seeds. Even: "
    "attention that is alike on all pieces. Effective keys: exp(entropy). Of more heads, the "
    "most is larger by chance as well."
)
FIGURES = {
    "distance": ("distance, pieces", 1, 1),
    "entropy": ("effective keys", 1, 1),
    "rest": ("on ends, %", 0, 100),
    "punctuation": ("on punctuation, %", 0, 100),
    "rare": ("on rare words, %", 0, 100),
}  # words, digits and scale of each measure
RANGES = {"distance": (0, np.inf), "entropy": (1, np.inf)}  # all others are shares
Heads = Mapping[str, Sequence[str]]
"""The heads of a run by role."""
Means = Mapping[str, Floats]


def subject(study: Study) -> Subject | None:
    """Tables of the roles of links, and of positional heads."""
    linked, placed_ = having(study, "roles", "gold", "ablation"), having(study, "roles")
    blocks: list = []
    rows = []
    findings: list[str] = []
    if linked:
        found = over_runs(linked, claimed)
        blocks += [NOTE, _table(study, linked, found)]
        rows += [count_row(label, "role", each.role, each.count) for label, own in found.items() for each in own]
        findings = list(_findings(found, study.label))
    if placed_:
        positional = over_runs(placed_, by_offset)
        blocks += [POSITIONAL, _table(study, placed_, positional)]
        rows += [count_row(label, "role", each.role, each.count) for label, own in positional.items() for each in own]
        spanned = {label: spans(runs) for label, runs in placed_.items()}
        blocks.append(Section("Near and far, punctuation and rare words", (SPANS, _spanned(study, placed_, spanned))))
        rows += list(_span_rows(spanned))
    return Subject(Section("Roles over seeds", tuple(blocks)), tuple(rows), tuple(findings)) if blocks else None


def claimed(run: Results) -> Heads:
    """The heads for which each relation is claimed, and those that follow it."""
    claims = run.claims()
    return {
        **{name: [each.head for each in claims if each.claimed and each.relation == name] for name in PHENOMENA},
        **{
            f"{name}, follows": [each.head for each in claims if each.attends and each.relation == name]
            for name in PHENOMENA
        },
    }


def by_offset(run: Results) -> Heads:
    """The positional heads by kind and offset."""
    names = {offset: name for name, offset in NEAR.items()}
    found: dict[str, list[str]] = {}
    offsets = positional_heads(run.parts["roles"])
    for head in heads_named(offsets):
        found.setdefault(f"positional, {head.kind}, {names.get(offsets[str(head)], 'farther')}", []).append(str(head))
    return found


Span = Sequence[SeedMean]
"""The least and the most of the heads of a kind, and even attention, over runs."""


def spans(runs: Sequence[Results]) -> dict[tuple[str, str], Span]:
    """The span of each of `FIGURES` in each kind of attention that every run has, by kind and measure."""
    means = [(run.parts["roles"]["kind"], *measure_means(run.parts["roles"])) for run in runs]
    return {
        (kind, name): [
            seed_mean(each, *RANGES.get(name, (0, 1)))
            for each in zip(*(_span(*run, kind, name) for run in means), strict=True)
        ]
        for kind in KINDS
        if all(kind in kinds for kinds, _, _ in means)
        for name in FIGURES
    }


def _span(kinds: NDArray, heads: Means, even: Means, kind: str, name: str) -> tuple[float, float, float]:
    inside = kinds == kind
    own, flat = ((np.exp(each[name]) if name == "entropy" else each[name])[inside] for each in (heads, even))
    return float(own.min()), float(own.max()), float(flat.mean())


def _spanned(study: Study, rows: Rows, spanned: Mapping[str, Mapping[tuple[str, str], Span]]) -> Table:
    lines = []
    for kind, name in dict.fromkeys(key for own in spanned.values() for key in own):
        words, digits, scale = FIGURES[name]
        cells = (own.get((kind, name)) for own in spanned.values())
        texts = ("–" if cell is None else _ends(cell, digits, scale) for cell in cells)
        lines.append((f"{kind}: {words}", *texts))
    titles = ("figure", *headers(study, rows))
    return Table(titles, tuple(lines), held(study, rows), frozenset(range(len(titles))))


def _ends(cell: Span, digits: int, scale: float) -> str:
    least, most = (text_of(each, digits, scale) for each in cell[:2])
    flat = f"{scale * cell[2].mean:.{digits}f}"
    return f"{least} (even {flat})" if least == most else f"{least} to {most} (even {flat})"


def _span_rows(spanned: Mapping[str, Mapping[tuple[str, str], Span]]) -> Iterator[Row]:
    for label, own in spanned.items():
        for (kind, name), cell in own.items():
            unit = {"distance": "pieces", "entropy": "keys"}.get(name, "share")
            endpoint = "effective" if name == "entropy" else name
            for end, mean in zip(("least", "most", "even"), cell, strict=True):
                yield mean_row(label, f"role.{endpoint}.{end}", kind, mean, unit)


def over_runs(rows: Rows, heads_of: Callable[[Results], Heads]) -> dict[str, list[Placed]]:
    """The runs of each row with a head for each role."""
    found = {label: [heads_of(run) for run in runs] for label, runs in rows.items()}
    roles = sorted({role for runs in found.values() for run in runs for role in run}, key=_order)
    return {
        label: [placed(role, [run.get(role, ()) for run in runs]) for role in roles] for label, runs in found.items()
    }


def _order(role: str) -> tuple[int, str]:
    name = role.partition(",")[0]
    return (list(PHENOMENA).index(name) if name in PHENOMENA else len(PHENOMENA)), role


def _table(study: Study, rows: Rows, found: Mapping[str, Sequence[Placed]]) -> Table | str:
    roles = [each.role for each in next(iter(found.values()))]
    if not roles:
        return " ".join(filter(None, ("No run has one.", held(study, rows))))
    lines = tuple((role, *(placed_of(own[n]) for own in found.values())) for n, role in enumerate(roles))
    titles = ("role", *headers(study, rows))
    return Table(titles, lines, held(study, rows), frozenset(range(len(titles))))


def _findings(found: Mapping[str, Sequence[Placed]], label: str) -> Iterator[str]:
    """All rows, since none of them is the one to show."""
    each = []
    for row, own in found.items():
        roles = [one for one in own if "," not in one.role and one.count.found]
        counts = ", ".join(f"{one.role} in {one.count.found} of {one.count.runs}" for one in roles)
        each.append(f"{label} {row}: {counts or 'none is shown'}")
    yield f"Roles that a head has, by the number of runs: {'; '.join(each)}."
