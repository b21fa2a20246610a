"""Score given translations; `--help` lists the settings."""

import sys

from omegaconf import DictConfig

from headcount.run.console import main
from headcount.run.score import score


@main("score")
def run(config: DictConfig) -> None:
    score(config, sys.stdout, sys.stderr)


if __name__ == "__main__":
    run()
