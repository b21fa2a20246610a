"""Curves of cutting, and how many heads can go: figures from the arrays of `cutting`, without a model."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headcount.heads.bleu import linear_bleu
from headcount.statistics.bootstrap import bleu_of, resamples
from headcount.statistics.max_t import DRAWS, ERROR

Floats = NDArray[np.float64]
RANDOM = "random"


class Curve(NamedTuple):
    """One order, from all heads cut to none. left [point]: heads left. loss [point]: nats a token. worst [point]:
    contrastive accuracy of the phenomenon with the least, in percent; empty without phenomena. bleu_left, bleu [bleu
    point]: BLEU of greedy translations."""

    name: str
    left: NDArray[np.int64]
    loss: Floats
    worst: Floats
    bleu_left: NDArray[np.int64]
    bleu: Floats

    def points(self, endpoint: str) -> tuple[NDArray[np.int64], Floats]:
        """Heads left, and the endpoint there: loss, worst or bleu; none where it was not measured."""
        values = getattr(self, endpoint)
        return (self.bleu_left if endpoint == "bleu" else self.left)[: len(values)], values


def curves(arrays: Mapping[str, NDArray]) -> list[Curve]:
    """The curve of each order, those drawn at random last, by the name "random"."""
    phenomena = np.unique(arrays["phenomenon"])
    right = arrays["right"] > arrays["wrong"]
    accuracy = np.array([100 * right[:, arrays["phenomenon"] == name].mean(axis=1) for name in phenomena])
    loss = arrays["loss"].sum(axis=1, dtype=np.float64) / arrays["tokens"].sum()
    bleu = bleu_of(arrays["bleu_counts"].sum(axis=1).astype(np.float64))
    found = []
    for number, name in enumerate(arrays["order_name"].tolist()):
        own = np.flatnonzero(arrays["setting_order"] == number)
        own = own[np.argsort(arrays["left"][own], kind="stable")]
        points = np.flatnonzero(arrays["setting_order"][arrays["bleu_setting"]] == number)
        bleu_left = arrays["left"][arrays["bleu_setting"][points]]
        worst = accuracy[:, own].min(axis=0) if len(phenomena) else accuracy
        found.append(Curve(name, arrays["left"][own], loss[own], worst, bleu_left, bleu[points]))
    return found


def free(arrays: Mapping[str, NDArray], endpoint: str, bound: float, seed: int = 0) -> dict[str, int]:
    """The heads that each order cuts for less than `bound` of an endpoint, "loss" in nats a token or "bleu": the upper
    end of the 95 % interval of the paired bootstrap over sentences is below it, there and at each point before. BLEU is
    measured at a few points, and resampled as the mean of what each sentence adds to it, see `linear_bleu`."""
    if endpoint == "bleu":
        settings, harm = arrays["bleu_setting"], -linear_bleu(arrays["bleu_counts"].astype(np.float64))
        size = np.ones(harm.shape[1])
    else:
        settings, harm = np.arange(len(arrays["left"])), arrays["loss"].astype(np.float64)
        size = arrays["tokens"].astype(np.float64)
    weights, found = resamples(harm.shape[1], DRAWS, seed), {}
    for number, name in enumerate(arrays["order_name"].tolist()):
        own = np.flatnonzero(arrays["setting_order"][settings] == number)
        own = own[np.argsort(-arrays["left"][settings[own]], kind="stable")]
        if name != RANDOM:
            extra = weights @ (harm[own] - harm[own[:1]]).T / (weights @ size)[:, None]
            cut = len(arrays["head"]) - arrays["left"][settings[own]]
            found[name] = _last(cut, np.quantile(extra, 1 - ERROR / 2, axis=0), bound)
    return found


def _last(cut: NDArray[np.int64], high: Floats, bound: float) -> int:
    """The heads cut at the last point before one whose upper end reaches the bound; points in order of heads cut, the
    first without cuts."""
    beyond = np.flatnonzero(high[1:] >= bound)
    return int(cut[beyond[0] if len(beyond) else -1])
