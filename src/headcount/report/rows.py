"""Rows of a study: which runs differ only in their seed, and a short name for each row."""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from headcount.report.runs import Row, RunResult, key_of, names_rows
from headcount.settings import at, typed, within

LONGEST = 40  # characters of the name of a row


@dataclass(frozen=True)
class RowName:
    """The label of a row in tables. value: of the setting that names the rows, if it is a single one. settings: all
    that name the row, with their values."""

    label: str
    value: Any = None
    settings: Mapping[str, Any] = field(default_factory=dict)


def names_by_setting(runs: Sequence[RunResult], setting: str) -> dict[str, RowName]:
    """The row of each run, by the value of one setting; of a config group, its kind."""
    names = {}
    for run in runs:
        value = at(run.config, setting)
        if isinstance(value, dict):
            value = value.get("kind")
        names[run.name] = RowName(typed(value), value, {setting: value})
    return names


def names_by_difference(
    runs: Sequence[RunResult], jobs: Mapping[str, Mapping[str, str]], differing: Sequence[str]
) -> tuple[dict[str, RowName], str | None]:
    """The row of each run, where every combination of the settings `differing` is a row; and a label for all rows, if a
    single setting names them.

    jobs: the overrides of each job by name, empty if unknown. A row is named by the overrides of its jobs; if these do
    not determine the row, by as few of its settings as distinguish all rows. If that is long for a row, all rows are
    named by values alone, where these are words (gru, before, additive); else that row after its first run.
    """
    combinations = {run.name: key_of([run.settings.get(setting) for setting in differing]) for run in runs}
    naming = _overrides_of_rows(jobs, combinations)
    if naming is None:
        naming = _distinguishing({run.name: run.settings for run in runs}, differing)
    words = all(isinstance(value, str) for settings in naming.values() for value in settings.values())
    values_alone = words and any(len(_listed(settings)) > LONGEST for settings in naming.values())
    names: dict[str, RowName] = {}
    for run, settings in naming.items():
        names.setdefault(combinations[run], _row_name(settings, run, values_alone))
    single = [name.rpartition(".")[2] for name in naming[runs[0].name]]
    return {run.name: names[combinations[run.name]] for run in runs}, single[0] if len(single) == 1 else None


def unnamed_settings(names: Mapping[str, RowName], jobs: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Settings that were typed, that differ from row to row, and that the names of the rows leave out, since others
    distinguish the rows as well. jobs: the overrides of each job by name."""
    given = {run: {name: value for name, value in jobs.get(run, {}).items() if names_rows(name)} for run in names}
    typed_ones = dict.fromkeys(setting for settings in given.values() for setting in settings)
    named = {setting for name in names.values() for setting in name.settings}
    if not named <= set(typed_ones):
        return []
    rows: dict[str, dict[str, set[str | None]]] = {}
    for run, name in names.items():
        for setting in typed_ones:
            rows.setdefault(setting, {}).setdefault(name.label, set()).add(given[run].get(setting))
    return [
        setting
        for setting, by_row in rows.items()
        if setting not in named and len({frozenset(values) for values in by_row.values()}) > 1
    ]


def _overrides_of_rows(
    jobs: Mapping[str, Mapping[str, str]], combinations: Mapping[str, str]
) -> dict[str, dict[str, Any]] | None:
    """The overrides that distinguish the jobs, by run; None if runs of two rows have the same ones.

    Those of unfinished jobs count too: a row keeps its name, and no name hides a setting that differs, whatever is
    finished.
    """
    overrides = {job: given for job, given in jobs.items() if given or job in combinations}
    naming = _distinguishing(overrides, dict.fromkeys(name for given in overrides.values() for name in given))
    groups = {run: key_of(naming[run]) for run in combinations}
    if len({(combinations[run], group) for run, group in groups.items()}) > len(set(groups.values())):
        return None
    return {run: {name: _parsed(text) for name, text in naming[run].items()} for run in combinations}


def _distinguishing(settings: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Of each run, as few of the settings `names` as distinguish the runs as well as all of them do, first come first
    taken."""
    chosen: dict[str, dict[str, Any]] = {run: {} for run in settings}
    groups = 1
    for name in names:
        if not names_rows(name):
            continue
        longer = {run: {**chosen[run], name: settings[run].get(name)} for run in settings}
        if (count := len(set(map(key_of, longer.values())))) > groups:
            chosen, groups = longer, count
    return chosen


def _row_name(settings: Mapping[str, Any], run: str, values_alone: bool) -> RowName:
    """The label of a row: its settings; if that is too long, `run`, the name of its first run, without the seed."""
    if len(settings) == 1:
        (value,) = settings.values()
        return RowName(typed(value), value, settings)
    label = (", ".join(settings.values()) if values_alone else _listed(settings)) if settings else "all runs"
    return RowName(label if len(label) <= LONGEST else re.sub(r",?seed=\d+", "", run), None, settings)


def _listed(settings: Mapping[str, Any]) -> str:
    """Settings and values. A name is cut to its last part where that is unique."""
    ends = [re.split("[./]", name)[-1] for name in settings]
    return ", ".join(
        f"{end if ends.count(end) == 1 else name}={typed(value)}"
        for (name, value), end in zip(settings.items(), ends, strict=True)
    )


def _parsed(text: str | None) -> Any:
    """The value of an override; text that is not YAML stays text."""
    try:
        return yaml.safe_load(text or "")
    except yaml.YAMLError:
        return text


def crossed(
    runs: Sequence[RunResult],
    names: Mapping[str, RowName],
    jobs: Mapping[str, Mapping[str, str]],
    of_seeds: Sequence[str],
) -> bool:
    """Whether a setting varies within the rows `names`: the plan crosses two settings, it has two kinds of runs of one
    row, or every row has two runs of the same seed with different settings.

    jobs: the overrides of each job by name, planned or finished, empty if unknown. of_seeds: settings that go with the
    seed.
    """
    overrides = {
        job: {name: value for name, value in given.items() if names_rows(name)} for job, given in jobs.items() if given
    }
    if _crossing(list(overrides.values())):
        return True
    kinds: dict[str, set[tuple[str, str]]] = {}
    settings: dict[str, dict[int, set[str]]] = {}
    for run in runs:
        if run.name in overrides:
            kind = (key_of(overrides[run.name]), key_of(without(run.settings, of_seeds)))
            kinds.setdefault(names[run.name].label, set()).add(kind)
        settings.setdefault(names[run.name].label, {}).setdefault(run.seed, set()).add(key_of(run.settings))
    planned = any(all(len(set(each)) > 1 for each in zip(*of_row, strict=True)) for of_row in kinds.values())
    return planned or all(any(len(several) > 1 for several in seeds.values()) for seeds in settings.values())


def _crossing(jobs: Sequence[Mapping[str, str]]) -> bool:
    """Whether of two settings each has a value that comes with several values of the other. jobs: overrides by name."""
    together: dict[tuple[str, str, str], set[str]] = {}
    for given in jobs:
        for name, other in itertools.permutations(given, 2):
            together.setdefault((name, other, given[name]), set()).add(given[other])
    several = {(name, other) for (name, other, _), values in together.items() if len(values) > 1}
    return any((other, name) in several for name, other in several)


def without(settings: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The settings that are none of `names`, and below none."""
    return {name: value for name, value in settings.items() if not within(name, names)}


def make_rows(
    runs: Sequence[RunResult], names: Mapping[str, RowName], notes: list[str], of_seeds: Sequence[str]
) -> tuple[tuple[Row, ...], tuple[RunResult, ...]]:
    """Runs of the same label as rows, sorted by value or label; and the runs left out, with the seed of another.

    notes: gets a line for each run that does not fit. of_seeds: settings that go with the seed.
    """
    members: dict[str, list[RunResult]] = {}
    for run in runs:
        members.setdefault(names[run.name].label, []).append(run)
    rows, repeated = [], []
    for label, found in members.items():
        kept = {run.seed: run for run in reversed(found)}
        more = [run for run in found if kept[run.seed] is not run]
        notes += [f"{run.name} has the seed of {kept[run.seed].name}, and is left out." for run in more]
        repeated += more
        if differing := [name for name in differing_settings(list(kept.values())) if not within(name, of_seeds)]:
            notes.append(
                f"The runs of {label} differ in more than their seed: {', '.join(differing)}. Their spread is not that "
                "of seeds alone."
            )
        name = names[found[0].name]
        rows.append(Row(label, name.value, tuple(kept[seed] for seed in sorted(kept)), name.settings))
    return tuple(sorted(rows, key=_order)), tuple(repeated)


def differing_settings(runs: Sequence[RunResult]) -> tuple[str, ...]:
    """The settings of which two runs have different values."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    return tuple(name for name in names if len({key_of(run.settings.get(name)) for run in runs}) > 1)


def _order(row: Row) -> tuple[int, float, list[tuple[int, float, str]]]:
    number = isinstance(row.value, int | float) and not isinstance(row.value, bool)
    return (0, float(row.value), []) if number else (1, 0.0, natural_order(row.label))


def natural_order(name: str) -> list[tuple[int, float, str]]:
    """A sort key that puts 16 after 4, and text in alphabetical order."""
    parts = "".join(c if c.isdigit() else f"\0{c}\0" for c in name).split("\0")
    return [(0, int(part), "") if part.isdigit() and part.isascii() else (1, 0, part) for part in parts if part]
