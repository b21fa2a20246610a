"""Translate standard input, a sentence a line; prompts when a person is typing."""

import sys

from omegaconf import DictConfig

from headcount.run.directory import open_as_asked
from headcount.run.script import main
from headcount.run.translate import converse, translate_stream


@main("translate")
def run(config: DictConfig) -> None:
    opened = open_as_asked(config, config.run)
    if sys.stdin.isatty():
        converse(opened)
    else:
        translate_stream(opened, sys.stdin.buffer, sys.stdout)


if __name__ == "__main__":
    run()
