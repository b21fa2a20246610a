"""Write a smaller run without some attention heads of a run."""

from headcount.heads.prune_run import prune
from headcount.run.console import run_script


def main() -> None:
    run_script("prune", prune)
