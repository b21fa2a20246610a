"""Roles over seeds: how many runs have a head for each role, and in which layer."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from headcount.heads.interface import heads_named
from headcount.heads.links import PHENOMENA
from headcount.heads.over_seeds import Placed, placed
from headcount.heads.results import Results, Study, Subject
from headcount.heads.roles import NEAR, positional_heads
from headcount.heads.sections.over_seeds.summary import Rows, count_row, having, headers, held, placed_of
from headcount.report.blocks import Section
from headcount.report.table import Table

NOTE = (
    "The number of runs with at least one head that has the role, with the 95 % interval of the share of runs (Clopper "
    "and Pearson 1934), and the runs with such a head in each layer. A role of a link is claimed only where the head "
    "follows gold links beyond all baselines and its phenomenon suffers without the head; follows: the first alone."
)
POSITIONAL = (
    "Positional heads: 90 % or more of the maxima are at one offset (Voita et al. 2019). Offsets of cross heads are to "
    "the position of the word that they predict."
)
Heads = Mapping[str, Sequence[str]]
"""The heads of a run by role."""


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
