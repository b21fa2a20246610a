"""Train a translation model; `--help` lists what can be set."""

import sys
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from headcount.run.script import main
from headcount.run.train import train


@main("train")
def run(config: DictConfig) -> None:
    sys.stdout.write(train(config, Path(HydraConfig.get().runtime.output_dir)) + "\n")


if __name__ == "__main__":
    run()
