"""Write a page that runs the model of a run."""

import logging
from pathlib import Path

from omegaconf import DictConfig

from headcount.errors import InputError
from headcount.files import show
from headcount.run.console import run_script
from headcount.run.directory import check_links
from headcount.run.opened import open_runs
from headcount.run.values import typed

logger = logging.getLogger("headcount.explore")


def run(config: DictConfig) -> None:
    from headcount.explore.page import write_page  # here, because --help does not need it

    if not (config.output is None or isinstance(config.output, str)):
        raise InputError(f"output={typed(config.output)}: must be text")
    if not isinstance(config.examples, int) or isinstance(config.examples, bool) or config.examples < 0:
        raise InputError(f"examples={typed(config.examples)}: must be a whole number, 0 or more")
    runs = open_runs(config)
    first = next(iter(runs.values())).directory
    if not config.output:
        check_links(first, "explore.html")
    output = Path(config.output) if config.output else first / "explore.html"
    logger.info("written: %s", show(write_page(runs, output, config.weights, config.examples)))


def main() -> None:
    run_script("explore", run)
