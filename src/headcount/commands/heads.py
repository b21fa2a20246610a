"""Measure what each attention head of a run does and what it is worth."""

from omegaconf import DictConfig

from headcount.errors import need
from headcount.run.console import run_script


def run(config: DictConfig) -> str:
    need("report")
    from headcount.heads.command import heads  # here, because --help does not need it

    return heads(config)


def main() -> None:
    run_script("heads", run)
