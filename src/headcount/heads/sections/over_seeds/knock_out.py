"""The mean knock-out map: heads of all seeds matched by their effects, and the mean effect of each."""

from collections.abc import Iterator, Sequence

import numpy as np

from headcount.heads.pictures import HeadMap, MapCell, drawn, signed
from headcount.heads.recurrence import Match, MatchedEffects, match, matched_effects
from headcount.heads.results import SENTENCE, Row, Study, Subject
from headcount.heads.sections.knock_out import UNITS
from headcount.heads.sections.over_seeds.summary import effects, having, held, plot_name, seeds, several
from headcount.heads.statistics import LOSS
from headcount.report.blocks import Section
from headcount.report.table import Table, interval, p_value
from headcount.statistics.max_t import ERROR, EffectTable

NOTE = (
    "Heads of the seeds of a row, matched one-to-one within each layer by their effects on half of the pairs "
    "(Hungarian algorithm). A cell is the mean effect over seeds of removing the matched head, on the other half, and "
    "after the slash the number of seeds in which that effect differs from 0 within the run, for all heads, columns "
    "and runs at once; pale and hatched: in none. The letters of heads have no order. Heads without such an effect in "
    "any seed are left out."
)
LIMIT = (
    "Similarity 1: the runs have the same profiles of effects; at random: the effects on each phenomenon are dealt "
    "anew to the heads of a layer. p: each for itself. Where no layer has two heads there is no choice, and no test."
)


def subject(study: Study) -> Subject | None:
    """A map for each row with two comparable runs or more."""
    rows, margins = having(study, "ablation"), effects(study, "margin")
    usable = {label: tables for label, tables in margins.items() if _alike(tables)}
    arrays = {label: [run.parts["ablation"] for run in rows[label]] for label in usable}
    if not usable:
        return None
    accuracies = effects(study, "accuracy")
    matches = [match(label, own) for label, own in arrays.items()]
    parts: list[Section] = []
    lines: list[Row] = []
    for found in matches:
        tables = {"accuracy": accuracies[found.row], "margin": usable[found.row]}
        means = {name: matched_effects(found, arrays[found.row], own, name) for name, own in tables.items()}
        maps = [_map(name, each, study.label) for name, each in means.items()]
        parts.append(Section(f"{study.label} {found.row}, {seeds(found.runs)}", (drawn(maps),)))
        lines += [row for name, each in means.items() for row in _rows(name, each)]
    single = [
        f"{study.label} {label} has no map, since it has {seeds(len(margins[label]))} to match."
        for label in margins
        if label not in usable
    ]
    note = " ".join(filter(None, (held(study, rows), *single)))
    blocks: tuple[str | Section | Table, ...] = (NOTE, *parts, _similar(matches, study.label), LIMIT, note)
    chosen = [found for found in matches if several(rows[found.row])]
    return Subject(Section("Mean knock-out over seeds", blocks), tuple(lines), tuple(_findings(chosen, study.label)))


def _alike(tables: Sequence[EffectTable]) -> bool:
    """Whether there are heads to match: two runs or more with the same ones, measured on phenomena."""
    return len(tables) > 1 and len({table.rows for table in tables}) == 1 and len(tables[0].columns) > 1


def _map(name: str, found: MatchedEffects, label: str) -> HeadMap:
    shown = np.flatnonzero(found.differs.any(axis=1))
    shown = shown if len(shown) else np.arange(len(found.heads))
    harm = found.mean * found.worse
    is_loss = np.array([column == LOSS for column in found.columns])
    scale = np.where(is_loss, abs(harm[:, is_loss]).max(), abs(harm[:, ~is_loss]).max())
    cells = [
        [
            _cell(found, head, column, harm[head, column] / max(scale[column], 1e-9), name)
            for column in range(len(is_loss))
        ]
        for head in shown.tolist()
    ]
    units = f"{UNITS[name][0]}; of the loss, {SENTENCE}"
    title = f"{label} {found.row}: mean change of {name} without each matched head, {units}, {seeds(found.runs)}"
    heads = [found.heads[head] for head in shown]
    return HeadMap(plot_name("matched", name, found.row), name, title, heads, found.columns, (), cells, linked=False)


def _cell(found: MatchedEffects, head: int, column: int, depth: float, name: str) -> MapCell:
    unit, digits = (SENTENCE, 2) if found.columns[column] == LOSS else UNITS[name]
    value, sure = float(found.mean[head, column]), int(found.differs[head, column])
    low, high = float(found.low[head, column]), float(found.high[head, column])
    between = "" if np.isnan(low) else f" {interval((low, high), digits)}"
    title = (
        f"{found.heads[head]} off, {found.columns[column]}: {value:+z.{digits}f} {unit}{between}, "
        f"differs in {sure} of {found.runs} seeds"
    )
    text = signed(value, digits) + (f" / {sure}" if sure else "")
    return MapCell(text, title, bool(sure), depth)


def _rows(name: str, found: MatchedEffects) -> Iterator[Row]:
    for head, column in np.ndindex(*found.mean.shape):
        if found.columns[column] != LOSS or name == "margin":
            mean, low, high = (float(each[head, column]) for each in (found.mean, found.low, found.high))
            verdict = f"differs in {found.differs[head, column]}"
            where = f"{found.row}:{found.heads[head]}"
            unit = SENTENCE if found.columns[column] == LOSS else UNITS[name][0]
            yield Row(where, f"matched.{name}", found.columns[column], mean, low, high, None, verdict, found.runs, unit)


def _similar(matches: Sequence[Match], label: str) -> Table:
    lines = tuple(
        (each.row, str(each.runs), f"{each.similarity:.2f}", f"{each.null:.2f}", p_value(each.p)) for each in matches
    )
    return Table((label, "runs", "similarity", "at random", "p"), lines)


def _findings(matches: Sequence[Match], label: str) -> Iterator[str]:
    p = [found.p * len(matches) for found in matches]
    if p and min(p) <= ERROR:
        found = matches[int(np.argmin(p))]
        yield (
            f"{label} {found.row}: heads matched over {found.runs} seeds have a similarity of {found.similarity:.2f}, "
            f"at random {found.null:.2f} (p {p_value(min(p))}, corrected for {len(p)} matches)."
        )
