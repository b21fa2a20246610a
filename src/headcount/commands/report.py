"""Report on a sweep."""

import logging

from omegaconf import DictConfig, OmegaConf

from headcount.errors import InputError
from headcount.files import show
from headcount.run.build import keyword_arguments

logger = logging.getLogger("headcount.report")


def run(config: DictConfig) -> None:
    from headcount.report.write import report  # imported here: it takes longer than the rest

    if OmegaConf.select(config, "sweep") is None:
        raise InputError(
            "sweep=null: must be the directory of a sweep, such as runs/sweep_grammar, or a file of kept runs"
        )
    logger.info("written: %s", show(report(**keyword_arguments(report, config))))
