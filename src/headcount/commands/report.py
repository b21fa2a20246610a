"""Report on a sweep."""

import logging
import re
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Ge
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from headcount.errors import InputError
from headcount.files import show
from headcount.report.write import report

logger = logging.getLogger("headcount.report")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """conf/report.yaml explains them."""

    sweep: str | None
    output: str | None
    keep: str | None
    text: str | None
    resamples: Annotated[int, Ge(100)]
    margin: dict[str, Any]  # headcount.report.study.Margins
    tuned: str | None
    planned: dict[str, Any] | None  # headcount.report.study.Study
    debug: Any


def run(config: DictConfig) -> None:
    if config.sweep is None:
        raise InputError(
            "sweep=null: must be the directory of a sweep, such as runs/sweep_grammar, or a file of kept runs"
        )
    settings: Any = OmegaConf.to_container(config)
    # What a command line that draws the plots has beside these.
    words = [word for word in HydraConfig.get().overrides.task if not re.match("sweep=|keep=|debug=", word)]
    logger.info("written: %s", show(report(**settings, words=words)))
