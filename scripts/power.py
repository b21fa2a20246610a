"""Simulate studies and analyse them; `--help` lists what can be set."""

import sys

from omegaconf import DictConfig, OmegaConf

from headcount.errors import InputError
from headcount.progress import progress_bar
from headcount.run.console import main
from headcount.run.values import wrong_values


@main("power")
def run(config: DictConfig) -> None:
    from headcount.report.statistics.power import power  # which needs more than the rest does
    from headcount.report.statistics.simulation import World

    values = OmegaConf.to_container(config)
    world = values.pop("world")
    values.pop("debug")
    wrong = wrong_values(power, values, str) + wrong_values(World, world, "world.{}".format)
    if wrong:
        raise InputError("\n".join(wrong))
    try:
        made = World(**world)
    except ValueError as error:
        raise InputError(f"world.{error}") from error
    with progress_bar("simulating", 3 * values["studies"] * len(values["seeds"])) as advance:
        power(made, **values, sink=sys.stdout, advance=lambda: advance(1))


if __name__ == "__main__":
    run()
