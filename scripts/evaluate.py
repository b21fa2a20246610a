"""Score a run, or several side by side; `--help` lists the settings."""

import sys

from omegaconf import DictConfig

from headcount.run.console import main
from headcount.run.evaluate import evaluate


@main("evaluate")
def run(config: DictConfig) -> None:
    sys.stdout.write(evaluate(config) + "\n")


if __name__ == "__main__":
    run()
