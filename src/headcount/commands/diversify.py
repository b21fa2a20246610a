"""Write a corpus of a training text and its translations by several runs."""

from headcount.run.console import run_script
from headcount.run.diversify import diversify


def main() -> None:
    run_script("diversify", diversify)
