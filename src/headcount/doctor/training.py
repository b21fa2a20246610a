"""Checks of a training: long enough, without divergence, better than trivial models, and the best weights chosen."""

import numpy as np

from headcount.doctor.check import Measured
from headcount.doctor.evidence import Evidence
from headcount.run.values import at

SOME = 200  # pairs of valid that the model scores with other sources


def changed(evidence: Evidence) -> Measured | None:
    return None if evidence.changed is None else Measured(float(evidence.changed))


def warm_up(evidence: Evidence) -> Measured | None:
    """Updates of training over those of the warm-up."""
    steps, warmup = _figure(evidence, "train.steps"), at(evidence.config, "schedule.warmup_steps")
    return Measured(steps / warmup) if steps is not None and isinstance(warmup, int) and warmup > 0 else None


def epochs(evidence: Evidence) -> Measured | None:
    return _measured(_figure(evidence, "train.epochs"))


def skipped(evidence: Evidence) -> Measured | None:
    """Steps that were skipped, since their gradients were not finite."""
    steps = _figure(evidence, "train.steps")
    return Measured((_figure(evidence, "train.skipped_steps") or 0) / steps) if steps else None


def over_frequencies(evidence: Evidence) -> Measured | None:
    """Entropy of the pieces of the targets of train less the loss on valid."""
    loss = _figure(evidence, "valid.loss")
    if loss is None or not evidence.splits or evidence.tokenizer is None:
        return None
    sentences = evidence.pieces["train"][1]
    counts = np.bincount(np.concatenate(sentences))
    counts = np.append(counts[counts > 0], len(sentences))  # each has its end
    shares = counts / counts.sum()
    return Measured(float(-(shares * np.log(shares)).sum() - loss))


def use_of_source(evidence: Evidence) -> Measured | None:
    """Loss on valid with the sources of other sentences, less that with their own."""
    if evidence.loss is None or "valid" not in evidence.splits:
        return None
    sources, targets = (side[:SOME] for side in evidence.splits["valid"])
    others = sources[len(sources) // 2 :] + sources[: len(sources) // 2]
    return Measured(evidence.loss(others, targets) - evidence.loss(sources, targets)) if len(sources) > 1 else None


def still_falling(evidence: Evidence) -> Measured | None:
    """The fall of the validation loss over the second half of the training."""
    curve = evidence.curves.get("valid/loss", ())
    if not curve:
        return None
    last, loss = curve[-1]
    earlier = [(step, value) for step, value in curve if step <= last / 2]
    return Measured(earlier[-1][1] - loss) if earlier else None


def rising_again(evidence: Evidence) -> Measured | None:
    """The rise of the validation loss from its lowest to the last, where BLEU has fallen too."""
    losses, scores = ([value for _, value in evidence.curves.get(name, ())] for name in ("valid/loss", "valid/bleu"))
    if len(losses) < 2 or str(at(evidence.config, "averaging._target_")).endswith("BestCheckpoint"):
        return None
    at_its_best = bool(scores) and scores[-1] >= max(scores) - 0.5
    return Measured(0.0 if at_its_best else losses[-1] - min(losses))


def weights(evidence: Evidence) -> Measured | None:
    """Validation loss of the weights that were scored, less that of the average or of the last weights."""
    if at(evidence.metrics, "weights.valid_bleu") is not None:
        return None  # BLEU chose them
    scored = _figure(evidence, "valid.loss")
    ends = [_figure(evidence, f"weights.valid_loss.{name}") for name in ("average", "last")]
    # An older run has the loss of its last weights in its log alone.
    curve, steps = evidence.curves.get("valid/loss", ()), _figure(evidence, "train.steps")
    others = [loss for loss in ends if loss is not None] or [loss for step, loss in curve[-1:] if step == steps]
    return Measured(scored - min(others)) if scored is not None and others else None


def differs(evidence: Evidence) -> Measured | None:
    """Difference of the losses on valid and test, in nats a piece."""
    valid, test = _figure(evidence, "valid.loss"), _figure(evidence, "test.loss")
    return None if valid is None or test is None else Measured(abs(test - valid))


def _figure(evidence: Evidence, path: str) -> float | None:
    value = at(evidence.metrics, path)
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:  # a number of hundreds of digits, which no run writes
        return None


def _measured(value: float | None) -> Measured | None:
    return None if value is None else Measured(value)
