"""Write a smaller run without some attention heads of a run."""

from omegaconf import DictConfig

from headcount.errors import need
from headcount.run.console import run_script


def run(config: DictConfig) -> str:
    need("report")
    from headcount.heads.prune_run import prune  # here, because --help does not need it

    return prune(config)


def main() -> None:
    run_script("prune", run)
