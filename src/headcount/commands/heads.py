"""Measure what each attention head of a run does and what it is worth."""

from headcount.heads.command import heads
from headcount.run.console import run_script


def main() -> None:
    run_script("heads", heads)
