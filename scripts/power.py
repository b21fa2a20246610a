"""Simulate studies: the power of a plan, and the error rates of the statistics in a report.

`--studies 100` makes the table of docs/results/statistics.md, in minutes. For a study that you plan, such as
`--studies 100 --seeds 3 8 --rows 6`; with more sentences, for a smaller effect: `--sentences 3000 --effect 1`.
"""

import argparse
import math
import sys
from collections.abc import Callable, Sequence

import numpy as np
from simulation import Outcome, World, simulate
from tabulate import tabulate

from headcount.progress import progress_bar
from headcount.statistics.planning import percent

HEADERS = (
    "seeds", "false alarms %", "false equals %", "pairs covered %", "all covered %", "pairs found %", "row found %",
    "equals found %",
)  # fmt: skip

PLAN = {
    "seeds": ([3, 5, 10], "runs a row; one line of the table for each number"),
    "rows": (4, "every pair of them is compared"),
    "effect": (2.0, "true difference of one row from the others, in multiples of seed_deviation"),
    "margin": (4.0, "of equality, in multiples of seed_deviation"),
    "studies": (300, "of each kind: no row differs; one does, by the effect; every second does, by the margin"),
    "resamples": (1000, "of the sentences, in each analysis"),
    "seed": (1, "of the simulation"),
}
WORLD = {  # with bootstrap deviations as of real runs on Multi30k: 0.8 BLEU of a score, 0.4 to 0.5 of a difference
    "sentences": (1000, "of the held-out text; 0: infinitely many, so that only seeds matter, as for losses"),
    "words": (12.0, "mean length of a sentence"),
    "bleu": (36.0, "true score of the rows without the effect"),
    "seed_deviation": (0.4, "standard deviation of BLEU between the runs of a row, over infinitely many sentences"),
    "deviations": ([], "of each row, in multiples of seed_deviation, such as 1 1 1 3; none: all 1"),
    "corpus_deviation": (None, "of what the corpus of a seed adds to all rows, with --sentences 0; none: one corpus"),
    "difficulty": (1.2, "of the log-odds that an n-gram matches, the same for all rows"),
    "interaction": (0.3, "of the log-odds, of one row"),
    "noise": (0.2, "of the log-odds, of one run"),
}


def power(
    world: World,
    seeds: Sequence[int],
    rows: int,
    effect: float,
    margin: float,
    studies: int,
    resamples: int,
    seed: int,
    advance: Callable[[], None],
) -> str:
    """A table, a line for each number of seeds.

    There are three kinds of studies: in the first no row differs; in the second the last row is better by `effect`; in
    the third every second row is better by exactly the `margin` of equality. Both are multiples of the deviation
    between seeds. advance: called after each of the 3 x studies x len(seeds) studies.
    """
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
    return f"{rows} rows, {_described(world)}, {kinds}{drawn}\n\n{tabulate(table, headers=HEADERS, stralign='right')}"


def _described(world: World) -> str:
    sentences = f"{world.sentences:,} sentences" if world.sentences else "seeds alone"
    times = f" times {', '.join(f'{value:g}' for value in world.deviations)}" if world.deviations else ""
    own = "" if world.corpus_deviation is None else f", corpus-to-corpus deviation {world.corpus_deviation:g}"
    return f"{sentences}, run-to-run deviation {world.seed_deviation:g}{times}{own}"


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, (default, about) in (PLAN | WORLD).items():
        many = isinstance(default, list)
        kind = float if default is None or default == [] else int if many else type(default)
        parser.add_argument(f"--{name}", type=kind, default=default, nargs="*" if many else None, help=about)
    given = vars(parser.parse_args())
    plan = {name: given.pop(name) for name in PLAN}
    rows, deviations = plan["rows"], given["deviations"]
    if min(plan["seeds"], default=0) < 2 or rows < 2 or plan["studies"] < 1 or plan["resamples"] < 2:
        parser.error("--seeds, --rows and --resamples must be 2 or more, --studies 1 or more")
    if given["seed_deviation"] <= 0 or plan["margin"] <= 0 or len(deviations) not in (0, rows):
        parser.error("--seed_deviation and --margin must be more than 0, --deviations one for each row, or none")
    try:
        world = World(**given | {"sentences": given["sentences"] or None})
    except ValueError as error:
        parser.error(str(error))
    with progress_bar("simulating", 3 * plan["studies"] * len(plan["seeds"])) as advance:
        table = power(world, **plan, advance=lambda: advance(1))
    sys.stdout.write(table + "\n")


if __name__ == "__main__":
    main()
