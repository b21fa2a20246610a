"""Report on a sweep; `--help` lists what can be set."""

import logging

from omegaconf import DictConfig, OmegaConf

from headcount.errors import InputError
from headcount.files import show
from headcount.run.console import main
from headcount.run.values import wrong_values

logger = logging.getLogger("headcount.report")


@main("report")
def run(config: DictConfig) -> None:
    from headcount.report.write import report  # which needs more than the rest does

    values = OmegaConf.to_container(config)
    values.pop("debug")
    if values["sweep"] is None:
        raise InputError("sweep=null: must be the directory of a sweep, such as runs/sweep")
    if wrong := wrong_values(report, values, str):
        raise InputError("\n".join(wrong))
    logger.info("written: %s", show(report(**values)))


if __name__ == "__main__":
    run()
