"""Effects of heads on the loss and on each phenomenon, as a table whose cells are one family.

An effect is the mean difference between the model with a change and the whole model, over the same sentences.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headcount.errors import InputError
from headcount.heads.likelihood import TokenLogProbs
from headcount.statistics.bootstrap import Floats
from headcount.statistics.max_t import DRAWS, NOISE, EffectTable, Sample, compared

LOSS = "loss"


@dataclass(frozen=True)
class Bounds:
    """The largest harm that does not matter, chosen by the user.

    loss: nats a target token. margin: nats of log p(right) - log p(wrong). accuracy: points of contrastive accuracy.
    bleu: BLEU of greedy translations. Raises InputError for one below 0.
    """

    loss: float
    margin: float
    accuracy: float
    bleu: float

    def __post_init__(self) -> None:
        for name, bound in vars(self).items():
            if not bound >= 0:
                raise InputError(f"bounds.{name}={bound}: must be 0 or more")


NO_HARM = Bounds(loss=0, margin=0, accuracy=0, bleu=0)


def effect_table(
    arrays: Mapping[str, NDArray],
    kind: str = "zero",
    endpoint: str = "margin",
    bounds: Bounds = NO_HARM,
    draws: int = DRAWS,
) -> EffectTable:
    """Effects of each head on loss and on each phenomenon, from the arrays of `ablation`.

    kind: of ablation: zero, mean, resample or only. endpoint of the phenomena: "margin", the mean of log p(right) -
    log p(wrong) in nats; "accuracy" in points; or, of zero ablation, "sensitivity", which a shift towards one answer
    does not change: the share of pairs whose margin is larger with the source than with its twin, in points. Loss is in
    nats a sentence. bounds: for verdicts of "non-inferior".
    """
    losses, scores = sentence_losses(arrays, kind), pair_scores(arrays, kind, endpoint)
    tokens, known = float(arrays[f"{kind}.lengths"].mean()), np.isfinite(scores).all(axis=0)
    row, phenomenon = arrays["row"][known], arrays["phenomenon"][known]
    columns = columns_of(losses, scores[:, known], row, phenomenon, bounds, tokens, endpoint)
    return compared(tuple(arrays["head"].tolist()), columns, draws)


def columns_of(
    losses: Floats,
    scores: Floats,
    row: NDArray,
    groups: NDArray,
    bounds: Bounds,
    tokens: float,
    endpoint: str = "margin",
) -> list[Sample]:
    """A column of loss, and one of the scores of each group.

    losses [1 + row, sentence], scores [1 + row, pair]: of the whole model, then of each row of the table. row, groups
    [pair]: the sentence and the group of each pair. tokens: target tokens a sentence.
    """
    everywhere, per_sentence = np.arange(losses.shape[1]), bounds.loss * tokens
    columns = [Sample(LOSS, losses[1:] - losses[0], everywhere, float(losses[0].mean()), 1, per_sentence)]
    for group in sorted(set(groups.tolist())):
        inside = groups == group
        values = scores[:, inside]
        # An accuracy without a single changed pair is not known exactly.
        least = NOISE if endpoint == "margin" else 100 / values.shape[1]
        harmless, whole = bounds.margin if endpoint == "margin" else bounds.accuracy, float(values[0].mean())
        sentence = row[inside].astype(np.int64)
        columns.append(Sample(group, values[1:] - values[0], sentence, whole, -1, harmless, least))
    return columns


def sentence_losses(arrays: Mapping[str, NDArray], kind: str) -> Floats:
    """Loss of each sentence in nats, [setting, sentence]; setting 0 is the whole model."""
    losses: Floats = -TokenLogProbs(_with_whole(arrays, kind, "reference"), arrays[f"{kind}.lengths"]).sums
    return losses


def pair_scores(arrays: Mapping[str, NDArray], kind: str, endpoint: str) -> Floats:
    """Margin in nats, or accuracy or sensitivity in percent, of each pair, [setting, pair]; setting 0 is the whole
    model. Sensitivity is NaN for a pair without a twin."""
    margins = _with_whole(arrays, kind, "right") - _with_whole(arrays, kind, "wrong")
    if endpoint == "sensitivity":
        margins -= _with_whole(arrays, kind, "twin_right") - _with_whole(arrays, kind, "twin_wrong")
    return margins if endpoint == "margin" else np.where(np.isnan(margins), np.nan, 100.0 * (margins > 0))


def _with_whole(arrays: Mapping[str, NDArray], kind: str, name: str) -> Floats:
    values = arrays[f"{kind}.{name}"].astype(np.float64)
    if kind != "only":
        return values
    whole: Floats = np.concatenate([arrays[f"zero.{name}"][:1].astype(np.float64), values])
    return whole
