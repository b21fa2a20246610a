"""Rows of a study: which runs differ only in their seed, and a short name for each row."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from headcount.report.runs import Row, RunResult, key_of, names_rows
from headcount.settings import Design, at, typed, within

LONGEST = 40  # characters of the name of a row


def name_rows(
    runs: Sequence[RunResult],
    jobs: Mapping[str, Mapping[str, str]],
    design: Design,
    of_seeds: Sequence[str],
    notes: list[str],
) -> tuple[dict[str, Row], str | None]:
    """The row of each run, as yet without runs, and a label for all rows, if a single setting names them.

    A row is what its jobs were typed with but for the seed, in as few settings as tell all jobs apart, finished or not;
    without a plan, the settings in which the runs differ. The setting that a study varies names its rows alone, unless
    that makes one row of two runs of the same seed. jobs: the overrides of each job by name, empty if unknown.
    of_seeds: settings that go with the seed. notes: gets warnings.
    """
    finished = {run.name: run for run in runs}
    given = {
        job: {name: _parsed(text) for name, text in own.items() if names_rows(name) and not within(name, of_seeds)}
        for job, own in jobs.items()
    }
    typed_ones = list(dict.fromkeys(name for own in given.values() for name in own))
    names = typed_ones or [name for name in differing_settings(runs) if not within(name, of_seeds)]
    every = {
        job: {
            name: own[name] if name in own else _value(finished[job], name)
            for name in (names if job in finished else own)
        }
        for job, own in given.items()
        if own or job in finished
    }
    naming = _distinguishing(every, names)
    if design.varies:
        if by_setting := _by_setting(design.varies, naming, finished, jobs):
            if all(name.value is None for name in by_setting.values()):
                notes.append(f"The study varies {design.varies}, but no run has this setting.")
            return by_setting, design.label
        notes.append(f"The runs vary more than {design.varies}, so each combination of settings is a row.")
    chosen = list(next(iter(naming.values())))
    varying = [name for name in typed_ones if len({key_of(settings.get(name)) for settings in every.values()}) > 1]
    if hidden := [name for name in varying if name not in chosen]:
        notes.append(
            f"Rows also differ in {', '.join(hidden)}, which their names leave out: a difference between rows may be "
            "due to that."
        )
    return _labels({run: naming[run] for run in finished}), chosen[0].rpartition(".")[2] if len(chosen) == 1 else None


def _by_setting(
    setting: str,
    naming: Mapping[str, Mapping[str, Any]],
    finished: Mapping[str, RunResult],
    jobs: Mapping[str, Mapping[str, str]],
) -> dict[str, Row]:
    """The name of the row of each run by the value of one setting; empty if runs of one value and seed differ in what
    names them otherwise."""
    told, alike = set(), set()
    for job, settings in naming.items():
        if job in finished:
            value, seed = _value(finished[job], setting), str(finished[job].seed)
        else:
            given = jobs[job]
            value = _parsed(given[setting]) if setting in given else key_of(settings)
            seed = given.get("seed", "")
        alike.add((key_of(value), seed))
        told.add((key_of(value), seed, key_of(settings)))
    values = {name: _value(run, setting) for name, run in finished.items()} if len(told) == len(alike) else {}
    return {name: Row(typed(value), value, (), {setting: value}) for name, value in values.items()}


def _value(run: RunResult, setting: str) -> Any:
    """The value of a setting of a run; of a config group, its kind."""
    value = at(run.config, setting)
    return value.get("kind") if isinstance(value, dict) else value


def _distinguishing(settings: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Of each run, as few of the settings `names` as distinguish the runs as well as all of them do, first come first
    taken."""
    chosen: dict[str, dict[str, Any]] = {run: {} for run in settings}
    groups = 1
    for name in names:
        longer = {run: {**chosen[run], name: settings[run].get(name)} for run in settings}
        if (count := len(set(map(key_of, longer.values())))) > groups:
            chosen, groups = longer, count
    return chosen


def _labels(naming: Mapping[str, Mapping[str, Any]]) -> dict[str, Row]:
    """The name of the row of each run by its settings. If that is long for a row, all rows are named by values alone,
    where these are words (gru, before, additive); else that row after its first run."""
    words = all(isinstance(value, str) for settings in naming.values() for value in settings.values())
    values_alone = words and any(len(_listed(settings)) > LONGEST for settings in naming.values())
    rows: dict[str, Row] = {}
    for run, settings in naming.items():
        label = ", ".join(settings.values()) if values_alone else _listed(settings)
        value = next(iter(settings.values())) if len(settings) == 1 else None
        if len(settings) == 1:
            label = typed(value)
        elif len(label) > LONGEST:
            label = re.sub(r",?seed=\d+", "", run)
        rows.setdefault(key_of(settings), Row(label or "all runs", value, (), settings))
    return {run: rows[key_of(settings)] for run, settings in naming.items()}


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


def make_rows(
    runs: Sequence[RunResult], names: Mapping[str, Row], notes: list[str], of_seeds: Sequence[str]
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
        rows.append(replace(names[found[0].name], runs=tuple(kept[seed] for seed in sorted(kept))))
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
