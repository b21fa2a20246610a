"""Measure what each attention head of a run does and what it is worth; `--help` lists the settings."""

from omegaconf import DictConfig

from headcount.run.console import main


@main("heads")
def run(config: DictConfig) -> None:
    from headcount.heads.command import heads  # here, because --help does not need it

    heads(config)


if __name__ == "__main__":
    run()
