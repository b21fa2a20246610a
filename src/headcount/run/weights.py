"""Model selection at the end of a run: the averaged weights or the last ones, whichever does better on validation."""

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

from headcount.devices import choose_device
from headcount.evaluation.likelihood import TargetScorer
from headcount.model.encoder_decoder import EncoderDecoder
from headcount.run.build import Parts
from headcount.run.opened import fill
from headcount.training.averaging import Weights, own_weights
from headcount.training.module import TranslationTask

logger = logging.getLogger(__name__)

AT_A_STOP = 256  # validation sentences, at most twice as many, on which a run that was stopped compares its weights


def scored_weights(parts: Parts, task: TranslationTask) -> tuple[Weights, dict[str, Any]]:
    """The weights to save and score, and their figures for metrics.json: see `choose_weights`. A run that was
    stopped compares the loss of some validation sentences, a finished run all."""
    stopped, model, averaging = bool(parts.interrupt.exit_code), task.model, parts.averaging
    average = None if averaging is None else averaging.weights(model, parts.trainer.global_step)
    metric = "loss" if stopped or averaging is None else averaging.metric
    rows = slice(None, None, max(1, len(task.sources) // AT_A_STOP) if stopped else 1)
    scorer = TargetScorer(model, task.translator.encode, parts.data.tokenizer.target.encode)

    def measure() -> dict[str, float]:
        log_probs, tokens = scorer.score(task.sources[rows], task.references[rows])
        figures = {"loss": -sum(log_probs) / sum(tokens)}
        if metric == "bleu":
            figures["bleu"] = task.bleu(task.translator.translate(task.sources))
        return figures

    # In float32, as `open_run` gives them; trainer.precision=bf16-true has others.
    model.float().to(choose_device("auto" if parts.trainer.accelerator.name() != "cpu" else "cpu")).eval()
    return choose_weights(model, average, measure)


def choose_weights(
    model: EncoderDecoder, average: Weights | None, measure: Callable[[], dict[str, float]]
) -> tuple[Weights, dict[str, Any]]:
    """The averaged weights if they do better than the last ones, which are those of `model`; else the last ones; and
    the figures for metrics.json: which weights are scored, and the validation loss of both (None for an average equal
    to the last weights).

    measure: the validation figures of the model as it is: "loss" in nats a token, and "bleu" where that decides, and
    the loss only a tie. Afterwards `model` has the weights that were chosen.
    """
    last = {name: tensor.clone() for name, tensor in own_weights(model).items()}
    averaged = {name: tensor.to(last[name]) for name, tensor in (average or {}).items()}
    candidates = {"last": last}
    if any(not tensor.equal(last[name]) for name, tensor in averaged.items()):
        candidates["average"] = averaged
    figures_of = {}
    for name, weights in candidates.items():
        fill(model, weights)
        figures_of[name] = measure()
    scored = max(figures_of, key=lambda name: _rank(figures_of[name]))
    fill(model, candidates[scored])
    figures = {"scored": scored} | {
        f"valid_{key}": {name: figures_of[name][key] if name in figures_of else None for name in ("average", "last")}
        for key in figures_of["last"]
    }
    logger.info("%s", verdict(figures))
    return candidates[scored], figures


def _rank(figures: Mapping[str, float]) -> tuple[bool, float, float]:
    """The higher, the better; weights without a finite loss are worse than all others."""
    return math.isfinite(figures["loss"]), figures.get("bleu", 0.0), -figures["loss"]


def verdict(figures: dict[str, Any]) -> str:
    """Which weights were kept, in one line."""
    measured = [
        f"{key.removeprefix('valid_')} {figures[key]['average']:.4f} averaged, {figures[key]['last']:.4f} last"
        for key in ("valid_bleu", "valid_loss")
        if key in figures and figures[key]["average"] is not None
    ]
    kept = "averaged" if figures["scored"] == "average" else "last"
    return f"weights kept: the {kept} ones" + (f" (on validation: {'; '.join(measured)})" if measured else "")
