"""What a study of so many seeds and sentences can find, and how often it errs: by simulation."""

import math
from collections.abc import Callable, Sequence
from typing import TextIO

import numpy as np
from tabulate import tabulate

from headcount.errors import InputError
from headcount.report.simulation import Outcome, World, simulate


def power(
    world: World,
    seeds: Sequence[int],
    rows: int,
    effect: float,
    studies: int,
    resamples: int,
    seed: int,
    sink: TextIO,
    advance: Callable[[], None],
) -> None:
    """Write a table to `sink`, a line for each number of seeds. Raises InputError.

    In half of the studies no row differs; in the others the last is better than the rest, by `effect` in deviations of
    the seed. advance: called after each of the studies, of which there are 2 x studies x len(seeds).
    """
    wrong = [
        f"{name}={value}: must be {least} or more"
        for name, value, least in (("rows", rows, 2), ("studies", studies, 1), ("resamples", resamples, 2))
        if value < least
    ]
    wrong += [f"seeds={list(seeds)}: must be one number or more"] if not seeds else []
    wrong += [f"seeds={list(seeds)}: each must be 2 or more; one seed tells nothing of seeds"] * any(
        n < 2 for n in seeds
    )
    if wrong:
        raise InputError("\n".join(wrong))
    same = np.full(rows, world.bleu)
    planted = same + effect * world.seed_deviation * (np.arange(rows) == rows - 1)
    table = []
    for number in seeds:
        without: list[Outcome] = []
        with_effect: list[Outcome] = []
        for truth, outcomes in ((same, without), (planted, with_effect)):
            for found in simulate(world, truth, number, studies, resamples, seed):
                outcomes.append(found)
                advance()
        table.append([number, *_columns(without, with_effect)])
    headers = ["seeds", "false alarms %", "pairs covered %", "all covered %", "pairs found %", "row found %"]
    sink.write(
        f"{rows} rows, {world.sentences:,} sentences, run-to-run deviation {world.seed_deviation:g} BLEU, effect "
        f"{effect * world.seed_deviation:g} BLEU; {studies:,} studies without it and {studies:,} with it, "
        f"{resamples:,} resamples each\n\n" + tabulate(table, headers=headers, stralign="right") + "\n"
    )


def _columns(without: Sequence[Outcome], with_effect: Sequence[Outcome]) -> list[str]:
    every = [*without, *with_effect]
    found = [outcome.found for outcome in with_effect]
    return [
        _share([outcome.alarm for outcome in without]),
        _share([outcome.covered for outcome in every]),
        _share([outcome.covered == 1 for outcome in every]),
        *([_share(found), _share([share > 0 for share in found])] if not math.isnan(found[0]) else ["", ""]),
    ]


def _share(values: Sequence[float]) -> str:
    """Percent, with the interval of Wilson 1927. A mean of shares gets that of a single trial a study, wide enough."""
    n, share, z = len(values), float(np.mean(values)), 1.96
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return f"{100 * share:.1f} [{100 * max(middle - half, 0):.1f}, {100 * min(middle + half, 1):.1f}]"
