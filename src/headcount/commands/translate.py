"""Translate standard input."""

from headcount.run.console import run_script
from headcount.run.translate import translate


def main() -> None:
    run_script("translate", translate)
