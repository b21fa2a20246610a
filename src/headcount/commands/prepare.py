"""Prepare a corpus before it is trained on: clean, train the tokenizer, encode, store."""

import sys
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from headcount.errors import InputError
from headcount.files import show
from headcount.run.again import AUTO
from headcount.run.console import run_script
from headcount.run.place import command
from headcount.run.values import typed


def run(config: DictConfig) -> str:
    from headcount.data.tokenizer import load_tokenizer  # here, because --help does not need these
    from headcount.machine import use_threads
    from headcount.run.config import build_data
    from headcount.run.resume import initial_config

    use_threads(config.threads)
    if config.resume not in (None, AUTO):
        raise InputError(
            f"resume={typed(config.resume)}: the corpus of that run is prepared by resuming it; leave it out"
        )
    config = initial_config(config)
    data = build_data(config)
    data.threads = config.threads
    if config.init_from:
        data.use_tokenizer(load_tokenizer(Path(config.init_from)))
    data.prepare_data()
    words = HydraConfig.get().overrides.task
    table = "" if sys.stdout.isatty() and sys.stderr.isatty() else f"{data.report.table()}\n\n"  # it was logged
    return f"{table}prepared: {show(data.prepared.absolute())}\nnext:  {command('train', *words)}\n"


def main() -> None:
    run_script("prepare", run)
