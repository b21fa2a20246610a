"""Error rates and power of the analysis, by simulation, as a table."""

import math
from collections.abc import Callable, Sequence
from typing import TextIO

import numpy as np
from tabulate import tabulate

from headcount.errors import InputError
from headcount.report.statistics.simulation import Outcome, World, simulate

HEADERS = (
    "seeds", "false alarms %", "false equals %", "pairs covered %", "all covered %", "pairs found %", "row found %",
    "equals found %",
)  # fmt: skip


def power(
    world: World,
    seeds: Sequence[int],
    rows: int,
    effect: float,
    margin: float,
    studies: int,
    resamples: int,
    seed: int,
    sink: TextIO,
    advance: Callable[[], None],
) -> None:
    """Write a table to `sink`, a line for each number of seeds. Raises InputError for settings that are out of range.

    There are three kinds of studies: in the first no row differs; in the second the last row is better by `effect`; in
    the third every second row is better by exactly the `margin` of equality. Both are multiples of the deviation
    between seeds. advance: called after each of the 3 x studies x len(seeds) studies.
    """
    _check(world, seeds, rows, margin, studies, resamples, seed)
    unit, row = world.seed_deviation, np.arange(rows, dtype=np.float64)
    truths = [world.bleu + unit * shift for shift in (0 * row, effect * (row == rows - 1), margin * (row % 2))]
    table = []
    for number in seeds:
        outcomes: list[list[Outcome]] = []
        for truth in truths:
            outcomes.append([])
            for outcome in simulate(world, truth, number, studies, resamples, seed, margin * unit):
                outcomes[-1].append(outcome)
                advance()
        table.append([number, *_columns(*outcomes)])
    kinds = f"effect {effect * unit:g}, margin {margin * unit:g}; {studies:,} studies of each kind"
    drawn = f", {resamples:,} resamples each" if world.sentences else ""
    sink.write(f"{rows} rows, {_described(world)}, {kinds}{drawn}\n\n")
    sink.write(tabulate(table, headers=HEADERS, stralign="right") + "\n")


def _described(world: World) -> str:
    sentences = f"{world.sentences:,} sentences" if world.sentences else "seeds alone"
    times = f" times {', '.join(f'{value:g}' for value in world.deviations)}" if world.deviations else ""
    own = "" if world.corpus_deviation is None else f", corpus-to-corpus deviation {world.corpus_deviation:g}"
    return f"{sentences}, run-to-run deviation {world.seed_deviation:g}{times}{own}"


def _check(
    world: World, seeds: Sequence[int], rows: int, margin: float, studies: int, resamples: int, seed: int
) -> None:
    wrong = [
        f"{name}={value}: must be {least} or more"
        for name, value, least in (
            ("rows", rows, 2),
            ("studies", studies, 1),
            ("resamples", resamples, 2),
            ("seed", seed, 0),
        )
        if value < least
    ]
    if not world.seed_deviation:
        wrong.append("world.seed_deviation=0: must be more than 0; effect and margin are multiples of it")
    if margin <= 0:
        wrong.append(f"margin={margin:g}: must be more than 0")
    if world.deviations and len(world.deviations) != rows:
        wrong.append(f"world.deviations={list(world.deviations)}: must be one for each of the {rows} rows, or none")
    if not seeds:
        wrong.append(f"seeds={list(seeds)}: must be one number or more")
    if any(number < 2 for number in seeds):
        wrong.append(f"seeds={list(seeds)}: each must be 2 or more; one seed a row has no spread")
    if wrong:
        raise InputError("\n".join(wrong))


def _columns(same: Sequence[Outcome], planted: Sequence[Outcome], at_margin: Sequence[Outcome]) -> list[str]:
    every = [*same, *planted, *at_margin]
    found = [outcome.found for outcome in planted]
    return [
        percent([outcome.alarm for outcome in same]),
        percent([outcome.false_equal for outcome in at_margin]),
        percent([outcome.covered for outcome in every]),
        percent([outcome.covered == 1 for outcome in every]),
        *([percent(found), percent([share > 0 for share in found])] if not math.isnan(found[0]) else ["", ""]),
        percent([outcome.equal for outcome in same]),
    ]


def percent(values: Sequence[float]) -> str:
    """Percent, with the interval of Wilson 1927. For a mean of shares, a study is one trial, which is conservative."""
    n, share, z = len(values), float(np.mean(values)), 1.96
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return f"{100 * share:.1f} [{100 * max(middle - half, 0):.1f}, {100 * min(middle + half, 1):.1f}]"
