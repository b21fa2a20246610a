"""Measure the speed of headcount and of others at the same work."""

import signal
import sys

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from headcount.benchmark.bench import benchmark
from headcount.benchmark.settings import as_lists
from headcount.run.console import run_script


def run(config: DictConfig) -> str:
    return benchmark(config, list(HydraConfig.get().overrides.task))


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exception, so that the processes of the peers end too
    sys.argv[1:] = as_lists(sys.argv[1:])
    run_script("bench", run)
