"""Export a run to another inference engine."""

import logging

from omegaconf import DictConfig

from headcount.files import show
from headcount.run.config import keyword_arguments
from headcount.run.console import run_script
from headcount.run.opened import OPENING, open_from_config

logger = logging.getLogger("headcount.export")


def run(config: DictConfig) -> None:
    from headcount.export.folder import write_folder  # here, because --help does not need it

    settings = keyword_arguments(write_folder, config, without={"run", "debug", *OPENING})
    logger.info("written: %s", show(write_folder(open_from_config(config, config.run), **settings)))


def main() -> None:
    run_script("export", run)
