"""Prepare a corpus before it is trained on: clean, train the tokenizer, encode, store."""

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from headcount.files import show
from headcount.run.console import run_script
from headcount.run.place import command


def run(config: DictConfig) -> str:
    from headcount.run.config import build_data  # here, because --help does not need it

    data = build_data(config)
    data.prepare_data()
    words = HydraConfig.get().overrides.task
    return f"{data.report.table()}\n\nprepared: {show(data.prepared.absolute())}\nnext:  {command('train', *words)}\n"


def main() -> None:
    run_script("prepare", run)
