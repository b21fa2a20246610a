"""Train a translation model."""

from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from headcount.run.console import run_script
from headcount.run.sweep import run_job
from headcount.run.train import train


def run(config: DictConfig) -> str | None:
    hydra = HydraConfig.get()
    directory = Path(hydra.runtime.output_dir)
    if hydra.mode != RunMode.MULTIRUN:
        return train(config, directory)
    run_job(config, directory)
    return None


def main() -> None:
    run_script("train", run)
