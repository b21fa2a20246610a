"""Choose among the n best translations of a run by the scores of further runs."""

from headcount.run.console import run_script
from headcount.run.rerank import rerank


def main() -> None:
    run_script("rerank", rerank)
