"""The command `heads`: measure the heads of a run, and write the results."""

import logging
from dataclasses import fields
from typing import Any

from omegaconf import DictConfig, OmegaConf

from headcount.errors import InputError
from headcount.files import show
from headcount.heads.analysis import Analysis, Settings
from headcount.heads.measure import measure
from headcount.run.opened import open_from_config
from headcount.run.values import typed

logger = logging.getLogger(__name__)


def heads(config: DictConfig) -> None:
    """Measure the heads as conf/heads.yaml says. Raises InputError."""
    values: Any = OmegaConf.to_container(config)
    parts = values["parts"]
    if parts is not None and not (isinstance(parts, list) and all(isinstance(part, str) for part in parts)):
        raise InputError(f"parts={typed(parts)}: must be a list of names, such as [ablation], or null for all")
    settings = Settings(**{field.name: values[field.name] for field in fields(Settings)})
    analysis = Analysis(open_from_config(config, config.run), settings)
    measure(analysis, parts)
    logger.info("written: %s", show(analysis.directory))
