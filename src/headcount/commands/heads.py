"""Measure what each attention head of a run is worth; prune heads; write attention weights."""

import logging
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from headcount.errors import InputError, need
from headcount.files import show
from headcount.progress import progress_bar
from headcount.run.config import keyword_arguments
from headcount.run.console import run_script
from headcount.run.opened import open_from_config
from headcount.run.values import fits, typed

logger = logging.getLogger("headcount.report")

PRUNING = ["prune", "cut", "order", "output", "order_sentences", "gate_penalties", "gate_steps", "seed"]
PRUNING += ["timed", "repetitions"]


def run(config: DictConfig) -> str:
    need("report")
    if config.attention is not None:
        return write_attention(config)
    if config.prune is not None or config.cut is not None:
        from headcount.heads.prune_run import prune_run  # here, because --help does not need these

        settings = keyword_arguments(prune_run, OmegaConf.masked_copy(config, PRUNING), without=("run",))
        settings["output"] = settings["output"] and Path(settings["output"])
        return prune_run(open_from_config(config, config.run), **settings)
    from headcount.heads.command import heads

    return heads(config)


def write_attention(config: DictConfig) -> str:
    """Write the attention weights of a sentence, or of the first test sentences, as arrays; or draw those of a sentence
    into a folder. Raises InputError."""
    from headcount.report import attention_arrays, attention_maps

    given: Any = OmegaConf.to_container(config)
    out, text, target, sentences = (given[name] for name in ("attention", "text", "target", "sentences"))
    drawn = not str(out).endswith(".npz")
    for name, value in {"attention": out, "text": text, "target": target}.items():
        if not isinstance(value, str) and (value is not None or (drawn and name == "text")):
            raise InputError(f"{name}={typed(value)}: must be text; put it in quotes, such as {name}='\"...\"'")
    if not fits(sentences, int) or sentences < 1:
        raise InputError(f"sentences={typed(sentences)}: must be a whole number, 1 or more")
    if target is not None and text is None:
        raise InputError("target=: goes with text=, the sentence that it translates; give both")
    if text is not None and not text.strip():
        raise InputError("text=: must be a sentence to translate")
    opened = open_from_config(config, config.run)
    if drawn:
        logger.info("written: %s", show(attention_maps.draw(opened, text, target, Path(out))))
        return ""
    sources = [text] if text is not None else list(opened.data().data["test"]["source"][:sentences])
    with progress_bar("translating", len(sources)) as progress:
        targets = opened.translator.translate(sources, progress) if target is None else [target]
    with progress_bar("attention weights", len(sources)) as progress:
        logger.info("written: %s", show(attention_arrays.write(opened, sources, targets, Path(out), progress)))
    return ""


def main() -> None:
    run_script("heads", run)
