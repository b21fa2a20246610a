"""Measure what each attention head of a run does and what it is worth; `--help` lists the settings."""

from headcount.heads.command import heads
from headcount.run.console import run_script

if __name__ == "__main__":
    run_script("heads", heads)
