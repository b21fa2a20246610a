"""Translate standard input."""

from omegaconf import DictConfig

from headcount.export.chosen import chosen_engine
from headcount.run.console import run_script
from headcount.run.translate import translate


def run(config: DictConfig) -> None:
    translate(config, chosen_engine(config))


def main() -> None:
    run_script("translate", run)
