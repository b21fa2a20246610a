"""Curves of cutting, and how many heads can go: figures from the arrays of `cutting`, without a model."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headcount.statistics.bootstrap import bleu_of, bootstrapped_bleu, resamples
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
        own = _settings(arrays, number)
        points = np.flatnonzero(arrays["setting_order"][arrays["bleu_setting"]] == number)
        bleu_left = arrays["left"][arrays["bleu_setting"][points]]
        worst = accuracy[:, own].min(axis=0) if len(phenomena) else accuracy
        found.append(Curve(name, arrays["left"][own], loss[own], worst, bleu_left, bleu[points]))
    return found


def _settings(arrays: Mapping[str, NDArray], order: int) -> NDArray[np.int64]:
    own = np.flatnonzero(arrays["setting_order"] == order)
    return np.asarray(own[np.argsort(arrays["left"][own], kind="stable")])


def free_by_bleu(arrays: Mapping[str, NDArray], bound: float, seed: int = 0) -> dict[str, int]:
    """The heads that each order cuts for less than `bound` BLEU: the upper end of the 95 % interval of the paired
    bootstrap over sentences is below it, there and at each point before. BLEU is measured at a few points."""
    sampled = bootstrapped_bleu(arrays["bleu_counts"].astype(np.float64), DRAWS, seed)  # [resample, point]
    of_setting = arrays["bleu_setting"]
    found = {}
    for number, name in _chosen(arrays):
        points = np.flatnonzero(arrays["setting_order"][of_setting] == number)
        cut = len(arrays["head"]) - arrays["left"][of_setting[points]]
        points, cut = points[np.argsort(cut)], np.sort(cut)
        high = np.quantile(sampled[:, points[:1]] - sampled[:, points], 1 - ERROR / 2, axis=0)
        found[name] = _last(cut, high, bound)
    return found


def free_by_loss(arrays: Mapping[str, NDArray], bound: float, seed: int = 0) -> dict[str, int]:
    """The heads that each order cuts for less than `bound` nats a token, as for `free_by_bleu`."""
    weights = resamples(arrays["loss"].shape[1], DRAWS, seed)
    tokens = weights @ arrays["tokens"].astype(np.float64)
    found = {}
    for number, name in _chosen(arrays):
        own = _settings(arrays, number)[::-1]
        extra = (arrays["loss"][own] - arrays["loss"][own[:1]]).astype(np.float64)
        high = np.quantile(weights @ extra.T / tokens[:, None], 1 - ERROR / 2, axis=0)
        cut = len(arrays["head"]) - arrays["left"][own]
        found[name] = _last(cut, high, bound)
    return found


def _chosen(arrays: Mapping[str, NDArray]) -> list[tuple[int, str]]:
    return [(number, name) for number, name in enumerate(arrays["order_name"].tolist()) if name != RANDOM]


def _last(cut: NDArray[np.int64], high: Floats, bound: float) -> int:
    """The heads cut at the last point before one whose upper end reaches the bound; points in order of heads cut, the
    first without cuts."""
    beyond = np.flatnonzero(high[1:] >= bound)
    return int(cut[beyond[0] if len(beyond) else -1])
