"""Translate standard input."""

from functools import partial

from omegaconf import DictConfig

from headcount.errors import InputError
from headcount.run.console import run_script
from headcount.run.translate import translate
from headcount.run.values import typed


def run(config: DictConfig) -> None:
    if config.engine == "headcount":
        return translate(config)
    if config.engine != "ctranslate2":
        raise InputError(f"engine={typed(config.engine)}: must be headcount or ctranslate2")
    from headcount.export.engine import check_settings, with_ctranslate2  # here, since it is not always installed

    check_settings(config.run, config.precision)
    precision, config.precision = config.precision, "float32"  # of the weights that it is given
    translate(config, partial(with_ctranslate2, precision=precision))


def main() -> None:
    run_script("translate", run)
