"""Rows of a study: which runs differ only in their seed, and a short name for each row."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from headcount.report.study import ASIDE, Config, Row, RunResult, StudyConfig, at
from headcount.run.identity import PLACES

LONGEST = 40  # characters of the name of a row


def name_by_settings(
    runs: Sequence[RunResult], jobs: Mapping[str, Sequence[str]], differing: Sequence[str], study: StudyConfig
) -> tuple[StudyConfig, dict[str, tuple[str, Any]]]:
    """Names and values of rows that are the combinations of all settings that differ, by run.

    A name holds what was typed, if the plan of the sweep tells; else as few of the settings as tell the rows apart; and
    where that is long, a row is called after its first run. Of a single setting, the study gets the name.
    """
    keys = {run.name: _key({name: run.settings.get(name) for name in differing}) for run in runs}
    typed = {run.name: dict(override.lstrip("+").partition("=")[::2] for override in jobs[run.name]) for run in runs}
    by_hand = _telling(list(typed.values()), list(dict.fromkeys(name for own in typed.values() for name in own)))
    settings = {run.name: run.settings for run in runs}
    own = {name: {setting: values.get(setting) for setting in by_hand} for name, values in typed.items()}
    if len({_key([keys[name], own[name]]) for name in keys}) != len({_key(values) for values in own.values()}):
        telling = _telling(list(settings.values()), differing)
        own = {name: {setting: values.get(setting) for setting in telling} for name, values in settings.items()}
    else:
        own = {name: {setting: _parsed(text) for setting, text in values.items()} for name, values in own.items()}
    told: dict[str, tuple[str, Any]] = {}
    first: dict[str, tuple[str, Any]] = {}
    for name, values in own.items():
        label = _name(values)
        if len(label) > LONGEST:
            label = re.sub(r",?seed=\d+", "", name)
        value = next(iter(values.values())) if len(values) == 1 else None
        told[name] = first.setdefault(keys[name], (say(value) if len(values) == 1 else label, value))
    single = next(iter(own.values()))
    return replace(study, label=next(iter(single)).rpartition(".")[2] if len(single) == 1 else None), told


def _telling(settings: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    """As few of the settings as tell apart what all of them do, the first first."""
    found: list[str] = []
    groups = 1
    for name in names:
        if any(name == aside or name.startswith(f"{aside}.") for aside in ASIDE - PLACES):
            continue
        told = len({_key([own.get(other) for other in (*found, name)]) for own in settings})
        if told > groups:
            found.append(name)
            groups = told
    return found


def make_rows(runs: Sequence[RunResult], told: Mapping[str, tuple[str, Any]], notes: list[str]) -> tuple[Row, ...]:
    """Runs of the same name and value together, sorted by these. What doesn't fit goes to the notes."""
    members: dict[str, list[RunResult]] = {}
    for run in runs:
        members.setdefault(told[run.name][0], []).append(run)
    rows = []
    for label, found in members.items():
        kept = {run.seed: run for run in reversed(found)}
        for run in found:
            if kept[run.seed] is not run:
                notes.append(f"{run.name} has the seed of {kept[run.seed].name}, and is left out.")
        within = differing_settings(list(kept.values()))
        if within:
            notes.append(
                f"The runs of {label} differ in more than their seed: {', '.join(within)}. Their spread is not that of "
                "seeds alone."
            )
        rows.append(Row(label, told[found[0].name][1], tuple(kept[seed] for seed in sorted(kept))))
    return tuple(sorted(rows, key=_order))


def differing_settings(runs: Sequence[RunResult]) -> tuple[str, ...]:
    names = dict.fromkeys(name for run in runs for name in run.settings)
    return tuple(name for name in names if len({_key(run.settings.get(name)) for run in runs}) > 1)


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _parsed(text: str | None) -> Any:
    """The value that was typed; what is no YAML is text."""
    try:
        return yaml.safe_load(text or "")
    except yaml.YAMLError:
        return text


def setting_value(config: Config, path: str) -> Any:
    """A setting's value; of a group, the class that it names."""
    value = at(config, path)
    return value["_target_"].rpartition(".")[2] if isinstance(value, dict) and "_target_" in value else value


def _order(row: Row) -> tuple[int, float, list[tuple[int, float, str]]]:
    number = isinstance(row.value, int | float) and not isinstance(row.value, bool)
    return (0, float(row.value), []) if number else (1, 0.0, natural_order(row.label))


def natural_order(name: str) -> list[tuple[int, float, str]]:
    """A key that puts 16 after 4, and text in the order of the alphabet."""
    parts = "".join(c if c.isdigit() else f"\0{c}\0" for c in name).split("\0")
    return [(0, int(part), "") if part.isdigit() and part.isascii() else (1, 0, part) for part in parts if part]


def say(value: Any) -> str:
    """A value as one would type it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(say, value))}]"
    return str(value)


def _name(settings: Mapping[str, Any]) -> str:
    """A row by its settings: the last part of each name that no other ends in, and its value."""
    if not settings:
        return "all runs"
    ends = [name.rpartition(".")[2] for name in settings]
    return ", ".join(
        f"{end if ends.count(end) == 1 else name}={say(value).rpartition('headcount.')[2]}"
        for (name, value), end in zip(settings.items(), ends, strict=True)
    )
