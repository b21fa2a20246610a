"""Simulate studies: the power of a plan, and the error rates of the statistics in a report.

Without arguments the table of docs/results/statistics.md, in minutes. For a study that you plan, such as
`--studies 100 --seeds 3 8 --rows 6`; with more sentences, for a smaller effect: `--sentences 3000 --effect 1`.
"""

import argparse
import sys

from headcount.errors import InputError
from headcount.progress import progress_bar
from headcount.report.statistics.power import power
from headcount.report.statistics.simulation import World

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, (default, about) in (PLAN | WORLD).items():
        many = isinstance(default, list)
        kind = float if default is None or default == [] else int if many else type(default)
        parser.add_argument(f"--{name}", type=kind, default=default, nargs="*" if many else None, help=about)
    given = vars(parser.parse_args())
    plan = {name: given.pop(name) for name in PLAN}
    try:
        world = World(**given | {"sentences": given["sentences"] or None})
        with progress_bar("simulating", 3 * plan["studies"] * len(plan["seeds"])) as advance:
            power(world, **plan, sink=sys.stdout, advance=lambda: advance(1))
    except (InputError, ValueError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
