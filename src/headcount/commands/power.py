"""Simulate studies and analyse them."""

import sys

from omegaconf import DictConfig

from headcount.errors import InputError
from headcount.progress import progress_bar
from headcount.run.config import Problems, keyword_arguments
from headcount.run.console import run_script


def run(config: DictConfig) -> None:
    from headcount.report.statistics.power import power  # imported here: it takes longer than the rest
    from headcount.report.statistics.simulation import World

    problems = Problems()
    settings = problems.attempt(keyword_arguments, power, config, without=("debug", "world", "sink", "advance"))
    sizes = problems.attempt(keyword_arguments, World, config.world, "world.")
    problems.raise_all()
    try:
        world = World(**sizes)
    except ValueError as error:
        raise InputError(f"world.{error}") from error
    with progress_bar("simulating", 3 * config.studies * len(config.seeds)) as advance:
        power(world, **settings, sink=sys.stdout, advance=lambda: advance(1))


def main() -> None:
    run_script("power", run)
