"""Score given translations."""

from headcount.run.console import run_script
from headcount.run.score import score


def main() -> None:
    run_script("score", score)
