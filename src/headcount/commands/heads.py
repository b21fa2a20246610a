"""Measure what each attention head of a run is worth; prune heads; write attention weights."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge
from omegaconf import DictConfig, OmegaConf

from headcount.errors import InputError, need
from headcount.files import show
from headcount.heads import analysis
from headcount.progress import progress_bar
from headcount.run.build import names_given, only_take
from headcount.run.opened import open_from_config
from headcount.settings import Opening, Positive, typed

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
    timed: Annotated[int, Ge(0)]
    repetitions: Positive
    attention: str | None
    text: str | None
    target: str | None
    sentences: Positive


PRUNING = ["prune", "cut", "order", "output", "order_sentences", "gate_penalties", "gate_steps", "seed"]
PRUNING += ["timed", "repetitions"]
OF_RUNS = ["run", "sweep", "checkpoint", "text", "target", "sentences"]
OF_RUNS += ["order", "timed", "repetitions", "step_sentences"]


def run(config: DictConfig) -> str:
    need("report")
    if config.attention is not None:
        only_take("attention=", ["attention", "text", "target", "sentences", "checkpoint", "device"])
        return write_attention(config)
    if config.prune is not None or config.cut is not None:
        only_take("prune= or cut=", [*PRUNING, "checkpoint", "device"])
        settings: Any = OmegaConf.to_container(OmegaConf.masked_copy(config, PRUNING))
        settings["output"] = settings["output"] and Path(settings["output"])
        from headcount.heads.prune import prune_run

        return prune_run(open_from_config(config, config.run), **settings)
    if config.model is None and config.input is not None:
        raise InputError("input=: goes with model=; the sentences of a run are those of its corpus")
    if config.model is not None and (other := [name for name in names_given() if name in OF_RUNS]):
        raise InputError(f"{other[0]}=: has no effect with model=; leave it out")
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
    if drawn:
        logger.info("written: %s", show(draw(opened, text, target, Path(out))))
        return ""
    sources = [text] if text is not None else list(opened.data().data["test"]["source"][:sentences])
    with progress_bar("translating", len(sources)) as progress:
        targets = opened.translator.translate(sources, progress) if target is None else [target]
    with progress_bar("attention weights", len(sources)) as progress:
        logger.info("written: %s", show(write_weights(opened, sources, targets, Path(out), progress)))
    return ""
