"""Draw the attention maps of a run, or write its attention weights as arrays."""

import logging
from pathlib import Path

from omegaconf import DictConfig

from headcount.errors import InputError
from headcount.files import show
from headcount.progress import progress_bar
from headcount.run.console import run_script
from headcount.run.directory import check_links
from headcount.run.opened import Run, open_from_config
from headcount.run.values import fits, typed

logger = logging.getLogger("headcount.report")


def run(config: DictConfig) -> None:
    from headcount.report.attention_maps import draw  # here, because --help does not need it

    for name, optional in {"text": bool(config.out), "target": True, "output": True, "out": True}.items():
        if not isinstance(config[name], str) and not (optional and config[name] is None):
            raise InputError(f"{name}={typed(config[name])}: must be text; put it in quotes, such as {name}='\"...\"'")
    if not fits(config.n, int) or config.n < 1:
        raise InputError(f"n={typed(config.n)}: must be a whole number, 1 or more")
    if config.target is not None and config.text is None:
        raise InputError("target=: goes with text=, the sentence that it translates; give both")
    if config.out and config.output:
        raise InputError("output=: the directory of drawings, and out=: a file of arrays; give one of them")
    opened = open_from_config(config, config.run)
    if config.out:
        return write_weights(opened, config.text, config.target, config.n, Path(config.out))
    if not config.output:
        check_links(opened.directory, "attention")
    output = Path(config.output) if config.output else opened.directory / "attention"
    logger.info("written: %s", show(draw(opened, config.text, config.target, output)))


def write_weights(run: Run, text: str | None, target: str | None, sentences: int, out: Path) -> None:
    """Write the attention weights of a sentence, or of the first ones of the test set, as arrays. Raises InputError."""
    from headcount.report.attention_arrays import write

    sources = [text] if text is not None else list(run.data().data["test"]["source"][:sentences])
    if not all(source.strip() for source in sources):
        raise InputError("text=: must be a sentence to translate")
    with progress_bar("translating", len(sources)) as progress:
        targets = run.translator.translate(sources, progress) if target is None else [target]
    with progress_bar("attention weights", len(sources)) as progress:
        logger.info("written: %s", show(write(run, sources, targets, out, progress)))


def main() -> None:
    run_script("attention", run)
