"""Simulate studies and analyse them; `--help` lists what can be set."""

import sys

from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.progress import Progress

from headcount.errors import InputError
from headcount.run.script import main
from headcount.run.types import wrong_values


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
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("simulating", total=3 * values["studies"] * len(values["seeds"]))
        power(made, **values, sink=sys.stdout, advance=lambda: progress.advance(task))


if __name__ == "__main__":
    run()
