"""Curves of cutting, their areas, and how many heads can go: figures from the arrays of `cutting`, without a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from headcount.report.table import interval
from headcount.statistics.bootstrap import bleu_of, bootstrapped_bleu, resamples
from headcount.statistics.max_t import DRAWS, ERROR

Floats = NDArray[np.float64]
RANDOM = "random"


@dataclass(frozen=True, eq=False)
class Curve:
    """One order: arrays by point, from all heads cut to none.

    heads: of the model. left [point]: heads left. loss [point]: nats a token. accuracy [point, phenomenon]:
    contrastive, in percent; worst [point]: of the phenomena. bleu_left, bleu [bleu point]: BLEU of greedy
    translations.
    """

    name: str
    heads: int
    left: NDArray[np.int64]
    loss: Floats
    phenomena: tuple[str, ...]
    accuracy: Floats
    bleu_left: NDArray[np.int64]
    bleu: Floats

    @property
    def worst(self) -> Floats:
        return np.asarray(self.accuracy.min(axis=1, initial=100.0))

    def area(self, left: NDArray[np.int64] | None = None) -> float:
        """The mean loss over the share of heads left (trapezoids), at these numbers of heads or at all."""
        inside = np.ones(len(self.left), dtype=bool) if left is None else np.isin(self.left, left)
        share = self.left[inside] / self.heads
        return float(np.trapezoid(self.loss[inside], share) / (share[-1] - share[0]))


def curves(arrays: Mapping[str, NDArray]) -> list[Curve]:
    """The curve of each order, those drawn at random last, by the name "random"."""
    phenomena = tuple(sorted(set(arrays["phenomenon"].tolist())))
    right = arrays["right"] > arrays["wrong"]
    by_phenomenon = [100 * right[:, arrays["phenomenon"] == name].mean(axis=1) for name in phenomena]
    accuracy = np.stack(by_phenomenon, axis=1) if phenomena else np.zeros((len(right), 0))
    loss = arrays["loss"].sum(axis=1, dtype=np.float64) / arrays["tokens"].sum()
    bleu = bleu_of(arrays["bleu_counts"].sum(axis=1).astype(np.float64))
    found = []
    for number, name in enumerate(arrays["order_name"].tolist()):
        own = _settings(arrays, number)
        points = np.flatnonzero(arrays["setting_order"][arrays["bleu_setting"]] == number)
        bleu_left = arrays["left"][arrays["bleu_setting"][points]]
        curve = Curve(
            name, len(arrays["head"]), arrays["left"][own], loss[own], phenomena, accuracy[own], bleu_left, bleu[points]
        )
        found.append(curve)
    return found


def _settings(arrays: Mapping[str, NDArray], order: int) -> NDArray[np.int64]:
    own = np.flatnonzero(arrays["setting_order"] == order)
    return np.asarray(own[np.argsort(arrays["left"][own], kind="stable")])


class Area(NamedTuple):
    """The area under the curve of an order, loss in nats a token, and the share of random orders that it is better
    than; None without any."""

    name: str
    loss: float
    better: float | None


def areas(arrays: Mapping[str, NDArray]) -> list[Area]:
    """The areas of all orders that are not random, at the numbers of heads left that the random ones have too."""
    every = curves(arrays)
    drawn = [curve for curve in every if curve.name == RANDOM]
    common = drawn[0].left if drawn else None
    others = np.array([curve.area(common) for curve in drawn])
    found = [(curve.name, curve.area(common)) for curve in every if curve.name != RANDOM]
    return [Area(name, own, float((own < others).mean()) if drawn else None) for name, own in found]


@dataclass(frozen=True)
class Limit:
    """How many heads an order can cut before something is lost.

    cut: the heads cut at the last point before. reason: what is lost at the next point, `next_cut` heads; None where
    nothing is lost at any point. lost, high [point]: the loss of BLEU or nats a token at each point with heads cut, and
    the upper end of its interval; empty for a limit by chance.
    """

    order: str
    cut: int
    next_cut: int | None
    reason: str | None
    lost: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @property
    def counted(self) -> bool:
        """Whether there was anything to lose in the whole model."""
        return self.cut > 0 or self.next_cut is not None or self.reason is None


def free_by_bleu(arrays: Mapping[str, NDArray], bound: float, seed: int = 0) -> list[Limit]:
    """The heads that each order cuts for less than `bound` BLEU: the upper end of the 95 % interval of the paired
    bootstrap over sentences is below it, there and at each point before. BLEU is measured at a few points."""
    sampled = bootstrapped_bleu(arrays["bleu_counts"].astype(np.float64), DRAWS, seed)  # [resample, point]
    exact = bleu_of(arrays["bleu_counts"].sum(axis=1).astype(np.float64))
    of_setting = arrays["bleu_setting"]
    found = []
    for number, name in _chosen(arrays):
        points = np.flatnonzero(arrays["setting_order"][of_setting] == number)
        cut = len(arrays["head"]) - arrays["left"][of_setting[points]]
        points, cut = points[np.argsort(cut)], np.sort(cut)
        lost = exact[points[:1]] - exact[points]
        high = np.quantile(sampled[:, points[:1]] - sampled[:, points], 1 - ERROR / 2, axis=0)
        found.append(_limit(name, cut, lost, high, bound, f"{bound} BLEU may be lost"))
    return found


def free_by_loss(arrays: Mapping[str, NDArray], bound: float, seed: int = 0) -> list[Limit]:
    """The heads that each order cuts for less than `bound` nats a token, as for `free_by_bleu`."""
    weights = resamples(arrays["loss"].shape[1], DRAWS, seed)
    tokens = weights @ arrays["tokens"].astype(np.float64)
    found = []
    for number, name in _chosen(arrays):
        own = _settings(arrays, number)[::-1]
        extra = (arrays["loss"][own] - arrays["loss"][own[:1]]).astype(np.float64)
        lost = extra.sum(axis=1) / arrays["tokens"].sum()
        high = np.quantile(weights @ extra.T / tokens[:, None], 1 - ERROR / 2, axis=0)
        cut = len(arrays["head"]) - arrays["left"][own]
        found.append(_limit(name, cut, lost, high, bound, f"{bound} nats a token may be lost"))
    return found


def above_chance(arrays: Mapping[str, NDArray]) -> list[Limit]:
    """The heads that each order cuts before the contrastive accuracy of a phenomenon can no longer be distinguished
    from chance: its Wilson interval (95 %) includes 50 %, or lies below. With few pairs this is no proof of chance; the
    reason names them. A phenomenon of which this holds in the whole model does not count."""
    phenomena = sorted(set(arrays["phenomenon"].tolist()))
    right = arrays["right"] > arrays["wrong"]
    inside = (arrays["phenomenon"][:, None] == np.array(phenomena)).astype(np.int64)  # [pair, phenomenon]
    wins, pairs = right.astype(np.int64) @ inside, inside.sum(axis=0)
    low, high = _wilson(wins, pairs)  # [setting, phenomenon]
    found = []
    for number, name in _chosen(arrays):
        own = _settings(arrays, number)[::-1]
        cut = len(arrays["head"]) - arrays["left"][own]
        unclear = (low[own] <= 50) & (low[own[:1]] > 50)
        if not (low[own[0]] > 50).any():
            found.append(Limit(name, 0, None, "no phenomenon is above chance in the whole model"))
            continue
        if not unclear.any():
            found.append(Limit(name, int(cut[-1]), None, None))
            continue
        first = int(unclear.any(axis=1).argmax())
        reasons = []
        for each in np.flatnonzero(unclear[first]):
            between = interval((low[own[first], each], high[own[first], each]), 0)
            reasons.append(f"{phenomena[each]}: {wins[own[first], each]} of {pairs[each]} right, {between} %")
        found.append(Limit(name, int(cut[first - 1]), int(cut[first]), "; ".join(reasons)))
    return found


def _wilson(right: NDArray[np.int64], pairs: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """The ends of the Wilson intervals of shares, in percent."""

    def ends(k: int, n: int) -> tuple[float, float]:
        found = stats.binomtest(k, n).proportion_ci(1 - ERROR, "wilson")
        return 100 * float(found.low), 100 * float(found.high)

    return np.vectorize(ends, otypes=[float, float])(right, pairs)


def _chosen(arrays: Mapping[str, NDArray]) -> list[tuple[int, str]]:
    return [(number, name) for number, name in enumerate(arrays["order_name"].tolist()) if name != RANDOM]


def _limit(name: str, cut: NDArray[np.int64], lost: Floats, high: Floats, bound: float, reason: str) -> Limit:
    """The limit from points in order of heads cut, the first without cuts."""
    beyond = np.flatnonzero(high[1:] >= bound)
    last = int(beyond[0]) if len(beyond) else len(cut) - 1
    rest = tuple(lost[1:].tolist()), tuple(high[1:].tolist())
    if not len(beyond):
        return Limit(name, int(cut[last]), None, None, *rest)
    return Limit(name, int(cut[last]), int(cut[last + 1]), reason, *rest)
