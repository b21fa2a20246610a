"""Measure what each attention head of a run is worth; prune heads; write attention weights."""

import logging
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from headcount.errors import InputError, need, reason
from headcount.files import show
from headcount.heads import analysis
from headcount.progress import progress_bar
from headcount.run.build import names_given
from headcount.run.opened import open_from_config
from headcount.settings import Opening, Positive, typed, within

logger = logging.getLogger("headcount.report")


@dataclass(frozen=True, kw_only=True)
class Settings(Opening, analysis.Settings):
    """conf/heads.yaml explains them."""

    device: str
    sweep: str | None
    model: str | None
    input: list[str] | None
    output: str | None
    parts: list[str] | None
    bounds: dict[str, Any]  # headcount.heads.statistics.Bounds
    prune: int | list[str] | None
    cut: list[str] | None
    order: str
    attention: str | None
    text: str | None
    target: str | None
    sentences: Positive


MEASURING = [field.name for field in fields(analysis.Settings)] + ["parts", "bounds", "output"]
PRUNING = ["prune", "cut", "order", "output", "order_sentences", "gate_penalties", "gate_steps", "seed"]
MODES = {
    "attention": ["run", "checkpoint", "attention", "text", "target", "sentences"],
    "prune": ["run", "checkpoint", *PRUNING],
    "cut": ["run", "checkpoint", "cut", "output"],
    "model": ["model", "input", *(name for name in MEASURING if name != "step_sentences")],
    "sweep": ["sweep", *MEASURING],
    "run": ["run", "checkpoint", *MEASURING],
}
"""What the command does, named by the first of these settings that is given, and the settings that it takes."""


def run(config: DictConfig) -> str:
    need("report")
    mode = next((name for name in MODES if config[name] is not None), "run")
    if other := [
        name for name in names_given() if not within(name, (*MODES[mode], "device", "threads", "extensions", "debug"))
    ]:
        takes = " or ".join(f"{name}=" for name, taken in MODES.items() if other[0] in taken)
        raise InputError(f"{other[0]}=: has no effect with {mode}=, but with {takes}")
    if config.attention is not None:
        return write_attention(config)
    if config.prune is not None or config.cut is not None:
        settings: Any = OmegaConf.to_container(OmegaConf.masked_copy(config, PRUNING))
        settings["output"] = settings["output"] and Path(settings["output"])
        from headcount.heads.prune import prune_run

        return prune_run(open_from_config(config, config.run), **settings)
    from headcount.heads.command import heads  # here, since it draws, with an extra

    return heads(config)


def write_attention(config: DictConfig) -> str:
    """Write the attention weights of a sentence, or of the first test sentences, as arrays; or draw those of a sentence
    into a folder. Raises InputError."""
    from headcount.heads.attention import draw, write_weights  # here, since it draws, with an extra

    given: Any = OmegaConf.to_container(config)
    out, text, target, sentences = (given[name] for name in ("attention", "text", "target", "sentences"))
    drawn = not str(out).endswith(".npz")
    if drawn and text is None:
        raise InputError(f"attention={typed(out)}: drawings are of a sentence; add text='\"...\"'")
    if target is not None and text is None:
        raise InputError("target=: goes with text=, the sentence that it translates; give both")
    if text is not None and not text.strip():
        raise InputError("text=: must be a sentence to translate")
    opened = open_from_config(config, config.run)
    sources = [text] if text is not None else list(opened.data().data["test"]["source"][:sentences])
    with progress_bar("translating", len(sources)) as progress:
        targets = opened.translator.translate(sources, progress) if target is None else [target]
    try:
        with progress_bar("attention weights", len(sources)) as progress:
            written = (draw if drawn else write_weights)(opened, sources, targets, Path(out), progress)
    except OSError as error:
        raise InputError(f"attention={out}: can't be written to ({reason(error)}); name another") from error
    logger.info("written: %s", show(written))
    return ""
