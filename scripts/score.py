"""Score given translations; `--help` lists what can be set."""

import sys

from omegaconf import DictConfig

from headcount.run.score import score
from headcount.run.script import main


@main("score")
def run(config: DictConfig) -> None:
    score(config, sys.stdout, sys.stderr)


if __name__ == "__main__":
    run()
