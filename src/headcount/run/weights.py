"""Model selection at the end of a run: the averaged weights or the last ones, whichever does better on validation."""

import logging
from collections.abc import Callable
from typing import Any

from headcount.model.encoder_decoder import EncoderDecoder
from headcount.run.opened import fill
from headcount.training.averaging import Weights, own_weights

logger = logging.getLogger(__name__)

# By about so many validation sentences, at most twice as many, the weights of a run that was stopped are chosen:
# somebody is waiting.
AT_A_STOP = 256


def choose_weights(
    model: EncoderDecoder, average: Weights | None, measure: Callable[[], dict[str, float]]
) -> tuple[Weights, dict[str, Any]]:
    """The averaged weights if they do better than the last ones, which are those of `model`; else the last ones. And
    what metrics.json says about the choice: which weights are scored, and the validation loss of both (None for an
    average that is the last weights).

    measure: the validation figures of the model as it is: "loss" in nats a token, and "bleu" where that decides, and
    the loss only a tie. Afterwards `model` has the weights that were chosen.
    """
    last = {name: tensor.clone() for name, tensor in own_weights(model).items()}
    averaged = {name: tensor.to(last[name]) for name, tensor in (average or {}).items()}
    candidates = {"last": last}
    if any(not tensor.equal(last[name]) for name, tensor in averaged.items()):
        candidates["average"] = averaged
    found = {}
    for name, weights in candidates.items():
        fill(model, weights)
        found[name] = measure()
    scored = max(found, key=lambda name: (found[name].get("bleu", 0.0), -found[name]["loss"]))
    fill(model, candidates[scored])
    figures = {"scored": scored} | {
        f"valid_{key}": {name: found[name][key] if name in found else None for name in ("average", "last")}
        for key in found["last"]
    }
    logger.info("%s", verdict(figures))
    return candidates[scored], figures


def verdict(figures: dict[str, Any]) -> str:
    """Which weights were kept, in one line."""
    told = [
        f"{key.removeprefix('valid_')} {figures[key]['average']:.4f} averaged, {figures[key]['last']:.4f} last"
        for key in ("valid_bleu", "valid_loss")
        if key in figures and figures[key]["average"] is not None
    ]
    kept = "averaged" if figures["scored"] == "average" else "last"
    return f"weights kept: the {kept} ones" + (f" (on validation: {'; '.join(told)})" if told else "")
