"""Train a translation model, or only prepare its corpus."""

import sys
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from headcount.command_lines import command
from headcount.errors import InputError
from headcount.files import show
from headcount.run.build import build_data, plain
from headcount.run.resume import AUTO, initial_config
from headcount.run.train import train
from headcount.settings import typed


def run(config: DictConfig) -> str:
    for name in ("resume", "init_from"):  # which are read before all others are checked
        if not isinstance(config[name], str | None):
            raise InputError(f"{name}={typed(plain(config)[name])}: must be the directory of a run, or null")
    if not isinstance(config.prepare, bool):
        raise InputError(f"prepare={typed(config.prepare)}: must be true or false")
    return prepare(config) if config.prepare else train(config, Path(HydraConfig.get().runtime.output_dir))


def prepare(config: DictConfig) -> str:
    """Prepare a corpus, as training with the same settings would; the table of what was dropped, and what to type next.
    Stopped, it goes on when the same is typed again."""
    from headcount.data.tokenizer import load_tokenizer
    from headcount.machine import use_threads

    if config.resume not in (None, AUTO):
        raise InputError(
            f"resume={typed(config.resume)}: the corpus of that run is prepared by resuming it; leave it out"
        )
    use_threads(config.threads)
    data = build_data(initial_config(config))
    if config.init_from:
        data.use_tokenizer(load_tokenizer(Path(config.init_from)))
    data.prepare_data()
    words = [word for word in HydraConfig.get().overrides.task if not word.startswith("prepare=")]
    table = "" if sys.stdout.isatty() and sys.stderr.isatty() else f"{data.report.table()}\n\n"  # it was logged
    return f"{table}prepared: {show(data.prepared.absolute())}\nnext:  {command('train', *words)}\n"
