"""Translate standard input, a sentence a line; prompts in a terminal."""

import sys

from omegaconf import DictConfig

from headcount.run.console import main
from headcount.run.translate import translate


@main("translate")
def run(config: DictConfig) -> None:
    translate(config, sys.stdin, sys.stdout)


if __name__ == "__main__":
    run()
