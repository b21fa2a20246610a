"""Choice of a setting, such as the learning rate, for each row by its validation loss."""

import math
from collections.abc import Sequence

from headcount.errors import InputError
from headcount.report.runs import RunResult, Tried, Tuning, finite, key_of
from headcount.settings import typed, within


def tune(runs: Sequence[RunResult], setting: str, of_seeds: Sequence[str]) -> tuple[list[RunResult], Tuning]:
    """The runs with the value of `setting` that has the lowest validation loss in their row, and how it was chosen.

    Values are compared by means over the seeds that all of them have; a run that diverged counts as infinite. of_seeds:
    settings that go with the seed. Raises InputError if no run has the setting, no row has two values of it, two
    values have no seed in common, or no value of a row has a loss.
    """
    if all(setting not in run.settings for run in runs):
        raise InputError(f"tuned={setting}: no run has this setting; name one of config.yaml, such as optimizer.lr")
    # A setting that takes it by interpolation equals it in every run.
    together = tuple(
        name for name in runs[0].settings if all(run.settings.get(name) == run.settings.get(setting) for run in runs)
    )
    groups: dict[str, list[RunResult]] = {}
    for run in runs:
        others = {name: value for name, value in run.settings.items() if not within(name, (*together, *of_seeds))}
        groups.setdefault(key_of(others), []).append(run)
    tried = {run.name: result for group in groups.values() for result in [_tried(group, setting)] for run in group}
    if all(len(each.losses) == 1 for each in tried.values()):
        raise InputError(f"tuned={setting}: no row has runs with two values of it, so there is nothing to choose")
    chosen = [run for run in runs if run.settings.get(setting) == tried[run.name].chosen]
    left = tuple(run for run in runs if run.settings.get(setting) != tried[run.name].chosen)
    return chosen, Tuning(setting, tried, left, together)


def _tried(group: Sequence[RunResult], setting: str) -> Tried:
    """Of the runs of one row, the loss of each value and the value chosen."""
    values: dict[str, list[RunResult]] = {}
    for run in sorted(group, key=lambda run: _order(run.settings.get(setting))):
        values.setdefault(key_of(run.settings.get(setting)), []).append(run)
    seeds = set.intersection(*({run.seed for run in same} for same in values.values()))
    if not seeds:
        names = ", ".join(typed(same[0].settings.get(setting)) for same in values.values())
        raise InputError(
            f"tuned={setting}: the runs like {group[0].name} have no seed that was trained with all of {names}; train "
            "one seed with each"
        )
    losses = tuple((same[0].settings.get(setting), _loss(same, seeds)) for same in values.values())
    if not any(finite(loss) for _, loss in losses):
        raise InputError(
            f"tuned={setting}: no value of the runs like {group[0].name} has a validation loss in all of the seeds "
            f"{', '.join(map(str, sorted(seeds)))}, so none can be chosen; train these again, or remove their folders"
        )
    return Tried(losses, tuple(sorted(seeds)), min(losses, key=lambda each: each[1])[0])


def _loss(runs: Sequence[RunResult], seeds: set[int]) -> float:
    losses = [run.figure("valid.loss") for run in runs if run.seed in seeds]
    return sum(losses) / len(losses) if all(map(finite, losses)) else math.inf


def _order(value: object) -> tuple[bool, float, str]:
    return (False, float(value), "") if finite(value) else (True, 0.0, typed(value))  # type: ignore[arg-type]
