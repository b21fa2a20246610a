"""Rows of a study: what jobs were typed with but for their seed; and the choice of a setting for each row."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import yaml

from headcount.errors import InputError
from headcount.report.runs import Row, RunResult, finite, key_of, separates_rows
from headcount.settings import Design, at, typed, within

ALL_RUNS = "all runs"  # the label of the only condition, whose runs differ in nothing but their seed
LONGEST = 40  # characters of settings with their names; where they are longer, words stand alone
Jobs = Mapping[str, Mapping[str, Any]]


def make_rows(
    runs: Sequence[RunResult], jobs: Jobs, design: Design, of_seeds: Sequence[str], notes: list[str]
) -> tuple[tuple[Row, ...], str | None, list[RunResult]]:
    """The rows in their order, a label for all of them if a single setting names them, and the runs that are left out,
    with the seed of another run of their row.

    jobs: the overrides of each job, finished or not. of_seeds: settings that go with the seed. notes: gets warnings.
    """
    told, label = _named(runs, jobs, design, of_seeds, notes)
    labels = _labels({run.name: told[run.name] for run in runs})
    rows, repeated = [], []
    for name, own in grouped(runs, lambda run: labels[run.name]).items():
        kept = {run.seed: run for run in reversed(own)}
        more = [run for run in own if kept[run.seed] is not run]
        notes += [f"{run.name} has the seed of {kept[run.seed].name}, and is left out." for run in more]
        repeated += more
        if differing := [each for each in differing_settings([*kept.values()]) if not within(each, of_seeds)]:
            notes.append(
                f"The runs of {name} differ in more than their seed: {', '.join(differing)}. Their spread is not that "
                "of seeds alone."
            )
        rows.append(Row(name, tuple(kept[seed] for seed in sorted(kept)), told[own[0].name]))
    return tuple(sorted(rows, key=_place)), label, repeated


def _place(row: Row) -> tuple[Any, ...]:
    """A sort key of rows: by the first setting that names them, then by the others."""
    return *by_size(next(iter(row.settings.values()), None)), natural_order(row.label)


def _named(
    runs: Sequence[RunResult], jobs: Jobs, design: Design, of_seeds: Sequence[str], notes: list[str]
) -> tuple[Jobs, str | None]:
    """The settings that name the row of each job, and a label for all of them. Without a plan, those in which the runs
    differ. The setting that a study varies names its rows alone, unless that makes one row of two jobs of a seed."""
    finished = {run.name: run for run in runs}

    def names_rows(name: str) -> bool:
        return (separates_rows(name) or name in ("recipe", "study.arm")) and not within(name, of_seeds)

    given = {job: {name: value for name, value in own.items() if names_rows(name)} for job, own in jobs.items()}
    names = dict.fromkeys(name for own in given.values() for name in own) or dict.fromkeys(
        name for name in differing_settings(runs) if not within(name, of_seeds)
    )
    told = {
        job: {name: own[name] if name in own else _value(finished.get(job), name) for name in names}
        for job, own in given.items()
        if own or job in finished
    }
    varying = [name for name in names if len({key_of(own[name]) for own in told.values()}) > 1]
    told = {job: {name: own[name] for name in varying} for job, own in told.items()}
    if varied := design.varies:
        values = {
            job: _value(finished[job], varied) if job in finished else jobs[job].get(varied, key_of(own))
            for job, own in told.items()
        }
        seeds = {job: finished[job].seed if job in finished else jobs[job].get("seed") for job in told}
        alike = {(key_of(values[job]), seeds[job]) for job in told}
        if len(alike) == len({(key_of(values[job]), seeds[job], key_of(own)) for job, own in told.items()}):
            return {job: {varied: value} for job, value in values.items()}, design.label
        notes.append(f"The runs vary more than {varied}, so each combination of settings is a condition.")
    return told, varying[0].rpartition(".")[2] if len(varying) == 1 else None


def _value(run: RunResult | None, setting: str) -> Any:
    """The value of a setting of a run; of a config group, its kind."""
    value = at(run.config, setting) if run else None
    return value.get("kind") if isinstance(value, dict) else value


def _labels(told: Jobs) -> dict[str, str]:
    """Of each job, the value of the one setting, or the list of settings and values but those that are null; values
    alone where the list is long for a row and they are words (gru, before, additive). A name is cut to its last part
    where that is unique."""
    names = list(next(iter(told.values())))
    ends = [re.split("[./]", name)[-1] for name in names]
    short = [end if ends.count(end) == 1 else name for name, end in zip(names, ends, strict=True)]
    values = {job: [*map(typed, own.values())] for job, own in told.items()}
    pairs = {job: list(zip(short, own, strict=True)) for job, own in values.items()}
    listed = {job: ", ".join(f"{a}={b}" for a, b in own if b != "null" or len(own) == 1) for job, own in pairs.items()}
    words = all(isinstance(value, str) for own in told.values() for value in own.values())
    if len(names) == 1 or (words and max(map(len, listed.values())) > LONGEST):
        listed = {job: ", ".join(own) for job, own in values.items()}
    return {job: text or ALL_RUNS for job, text in listed.items()}


def parsed(text: str) -> Any:
    """The value of an override; text that is not YAML stays text."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def grouped(runs: Sequence[RunResult], key: Callable[[RunResult], str]) -> dict[str, list[RunResult]]:
    """The runs by their key, in the order of the first of each."""
    groups: dict[str, list[RunResult]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def differing_settings(runs: Sequence[RunResult]) -> tuple[str, ...]:
    """The settings of which two runs have different values."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    return tuple(name for name in names if len({key_of(run.settings.get(name)) for run in runs}) > 1)


def by_size(value: Any) -> tuple[bool, float]:
    """A sort key that puts numbers first, the smallest at the beginning."""
    return not finite(value), value if finite(value) else 0.0


def natural_order(name: str) -> list[str | int]:
    """A sort key that puts 16 after 4, and text in alphabetical order."""
    return [int(part) if place % 2 else part for place, part in enumerate(re.split(r"(\d+)", name))]


def tune(
    runs: Sequence[RunResult], setting: str, of_seeds: Sequence[str]
) -> tuple[list[RunResult], pd.DataFrame, tuple[str, ...]]:
    """The runs with the value of `setting` that has the lowest validation loss in their row; a line for each value
    tried, see `Sweep.tried`; and the settings that follow this one, and itself.

    Values are compared by means over the seeds that all of them have; a run that diverged counts as infinite. of_seeds:
    settings that go with the seed. Raises InputError if no run has the setting, no row has two values of it, or the
    values of a row have no seed in common.
    """
    if all(setting not in run.settings for run in runs):
        raise InputError(f"tuned={setting}: no run has this setting; name one of config.yaml, such as optimizer.lr")
    # A setting that takes it by interpolation equals it in every run.
    together = tuple(
        name for name in runs[0].settings if all(run.settings.get(name) == run.settings.get(setting) for run in runs)
    )
    groups = grouped(runs, lambda run: run.key(run.settings.keys(), (*together, *of_seeds)))
    tried = [_tried(own, setting) for own in groups.values()]
    if all(len(lines) == 1 for lines, _ in tried):
        raise InputError(f"tuned={setting}: no condition has runs with two values of it, so there is nothing to choose")
    chosen = {run.name for _, own in tried for run in own}
    lines = pd.concat([lines for lines, _ in tried], ignore_index=True)
    return [run for run in runs if run.name in chosen], lines, together


def _tried(runs: Sequence[RunResult], setting: str) -> tuple[pd.DataFrame, list[RunResult]]:
    """Of the runs of one row, a line for each value, and the runs of the chosen one."""
    runs = sorted(runs, key=lambda run: (*by_size(value := run.settings.get(setting)), typed(value)))
    values = [run.settings.get(setting) for run in runs]
    losses = [loss if finite(loss := run.figure("valid.loss")) else np.inf for run in runs]
    table = pd.DataFrame({setting: [*map(typed, values)], "seed": [run.seed for run in runs], "loss": losses})
    known = table.pivot_table(index=setting, columns="seed", values="loss", sort=False).dropna(axis=1)
    seeds = ", ".join(map(str, sorted(known.columns)))
    means = known.mean(axis=1)
    if not seeds or np.isinf(means).all():
        raise InputError(
            f"tuned={setting}: the runs like {runs[0].name} have no seed with a validation loss at each of "
            f"{', '.join(known.index)}, so none can be chosen; train one seed with each"
        )
    best, choice = means.idxmin(), dict.fromkeys(means.index, "")
    ends = {means.index[0]: ", the smallest", means.index[-1]: ", the largest"} if all(map(finite, values)) else {}
    choice[best] = f"yes{ends.get(best, '')}" if len(means) > 1 else "the only one"
    chosen = [run for run, value in zip(runs, table[setting], strict=True) if value == best]
    lines = pd.DataFrame({setting: means.index, "loss": means.tolist(), "chosen": choice.values()})
    return lines.assign(seeds=seeds.replace(",", ""), run=chosen[0].name), chosen
