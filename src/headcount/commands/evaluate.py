"""Score a run, or several side by side."""

from headcount.run.console import run_script
from headcount.run.evaluate import evaluate


def main() -> None:
    run_script("evaluate", evaluate)
