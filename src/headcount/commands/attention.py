"""Draw the attention maps of a run."""

import logging
from pathlib import Path

from omegaconf import DictConfig

from headcount.errors import InputError
from headcount.files import show
from headcount.run.console import run_script
from headcount.run.directory import check_links
from headcount.run.opened import open_from_config
from headcount.run.values import typed

logger = logging.getLogger("headcount.report")


def run(config: DictConfig) -> None:
    from headcount.report.attention_maps import draw  # here, because --help does not need it

    for name, optional in {"text": False, "target": True, "output": True}.items():
        if not isinstance(config[name], str) and not (optional and config[name] is None):
            raise InputError(f"{name}={typed(config[name])}: must be text; put it in quotes, such as {name}='\"...\"'")
    opened = open_from_config(config, config.run)
    if not config.output:
        check_links(opened.directory, "attention")
    output = Path(config.output) if config.output else opened.directory / "attention"
    logger.info("written: %s", show(draw(opened, config.text, config.target, output)))


def main() -> None:
    run_script("attention", run)
