"""Report on a sweep."""

import logging

from omegaconf import DictConfig, OmegaConf

from headcount.errors import InputError
from headcount.files import show
from headcount.run.config import keyword_arguments
from headcount.run.console import run_script

logger = logging.getLogger("headcount.report")


def run(config: DictConfig) -> None:
    from headcount.report.write import report  # imported here: it takes longer than the rest

    if OmegaConf.select(config, "sweep") is None:
        raise InputError("sweep=null: must be a directory or file of runs, such as runs/sweep_grammar")
    logger.info("written: %s", show(report(**keyword_arguments(report, config))))


def main() -> None:
    run_script("report", run)
