"""Train a translation model; `--help` lists the settings."""

import sys
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from headcount.run.console import main
from headcount.run.sweep import run_job
from headcount.run.train import train


@main("train")
def run(config: DictConfig) -> None:
    hydra = HydraConfig.get()
    directory = Path(hydra.runtime.output_dir)
    if hydra.mode == RunMode.MULTIRUN:
        run_job(config, directory)
    else:
        summary = train(config, directory)
        if summary:  # of several processes, the first has one
            sys.stdout.write(summary + "\n")


if __name__ == "__main__":
    run()
