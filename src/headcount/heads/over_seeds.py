"""Statistics over seeds: means with t intervals, shares of runs, and the figures of each part over runs.

A run is one observation: it enters with one figure, whatever the number of its sentences and heads. Heads of different
seeds have no common names, so figures are those of the run, or of its best head.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from headcount.heads.cutting_curves import Curve
from headcount.heads.development import CURVES, Emergence
from headcount.heads.importance import PROXIES, Guide
from headcount.heads.interface import Head, heads_named
from headcount.heads.links import WHENS
from headcount.heads.observed import VIEWS
from headcount.statistics.bootstrap import Floats
from headcount.statistics.max_t import ERROR

Arrays = Mapping[str, NDArray]
Key = TypeVar("Key")
RELIABILITY = "reliability"
FAMILY = ERROR / 3
"""The error of each of three families of tests on a page: within its runs, of where cues go, and of what is first."""


@dataclass(frozen=True)
class SeedMean:
    """The mean of a figure over the runs that have it. low, high: its 95 % t interval over seeds; error: its standard
    error. They are NaN for fewer than three runs, and for runs that are all equal. least, most: its range."""

    runs: int
    mean: float
    low: float
    high: float
    least: float
    most: float
    error: float = float("nan")

    def p(self, at: float) -> float:
        """The p-value of a t test of whether the mean is `at`; 1 where there is no error to test it by."""
        p = 2 * stats.t.sf(abs(self.mean - at) / self.error, self.runs - 1) if self.error > 0 else 1.0
        return float(p)


def seed_mean(values: ArrayLike, low: float = -np.inf, high: float = np.inf) -> SeedMean:
    """The mean of values that are not NaN; the interval ends at the bounds of the figure, low and high."""
    known = np.asarray(values, dtype=np.float64)
    known = known[~np.isnan(known)]
    nan = float("nan")
    if not len(known):
        return SeedMean(0, nan, nan, nan, nan, nan)
    mean, least, most = float(known.mean()), float(known.min()), float(known.max())
    if len(known) < 3 or np.isclose(least, most, rtol=1e-12):
        return SeedMean(len(known), mean, nan, nan, least, most)
    error = float(known.std(ddof=1) / np.sqrt(len(known)))
    half = float(stats.t.isf(ERROR / 2, len(known) - 1)) * error
    return SeedMean(len(known), mean, max(mean - half, low), min(mean + half, high), least, most, error)


def found_by(p: Mapping[Key, float], error: float = FAMILY) -> set[Key]:
    """The cells whose test rejects, all cells of a page being one family (Holm 1979)."""
    ordered = sorted(p, key=lambda cell: p[cell])
    kept = (n for n, cell in enumerate(ordered) if p[cell] > error / (len(ordered) - n))
    return set(ordered[: next(kept, len(ordered))])


@dataclass(frozen=True)
class SeedCount:
    """The number of runs in which something was found. low, high: 95 % interval of the share of runs (Clopper and
    Pearson 1934)."""

    found: int
    runs: int
    low: float
    high: float


def seed_count(found: Iterable[bool]) -> SeedCount:
    """Count the runs. Raises ValueError without any."""
    flags = [bool(each) for each in found]
    interval = stats.binomtest(sum(flags), len(flags)).proportion_ci(1 - ERROR, method="exact")
    return SeedCount(sum(flags), len(flags), float(interval.low), float(interval.high))


@dataclass(frozen=True)
class Placed:
    """Runs with at least one head for a role. layers: the runs with such a head in each layer."""

    role: str
    count: SeedCount
    layers: Mapping[str, int]


def placed(role: str, runs: Sequence[Iterable[str]]) -> Placed:
    """Count the runs by the heads that each of them has for a role."""
    layers = [{str(head.place) for head in heads_named(heads)} for heads in runs]
    counts = Counter(layer for each in layers for layer in each)
    return Placed(role, seed_count(map(bool, layers)), dict(sorted(counts.items())))


@dataclass(frozen=True, eq=False)
class Band:
    """Curves of one order of cutting over seeds, "random": of the mean over the random orders of each run. left
    [point]: heads left. mean [point], low, high: 95 % t interval over seeds, NaN for a single run."""

    order: str
    runs: int
    left: NDArray[np.int64]
    mean: Floats
    low: Floats
    high: Floats


def bands(runs: Sequence[Sequence[Curve]], endpoint: str) -> list[Band]:
    """The bands of all orders that every run has. endpoint: of `Curve`, such as loss, worst or bleu."""
    orders = [curve.name for curve in runs[0] if all(any(each.name == curve.name for each in run) for run in runs)]
    lines = {order: [_line(run, order, endpoint) for run in runs] for order in dict.fromkeys(orders)}
    most = np.inf if endpoint == "loss" else 100
    return [_band(order, own, most) for order, own in lines.items() if all(own)]


def _line(curves: Sequence[Curve], order: str, endpoint: str) -> dict[int, float]:
    """The endpoint by the number of heads left, the mean over curves of this name."""
    values: dict[int, list[float]] = {}
    for curve in curves:
        if curve.name == order:
            for left, value in zip(*curve.points(endpoint), strict=True):
                values.setdefault(int(left), []).append(float(value))
    return {count: float(np.mean(each)) for count, each in values.items()}


def _band(order: str, lines: Sequence[Mapping[int, float]], most: float) -> Band:
    left = sorted(set.intersection(*(set(line) for line in lines)))
    points = [seed_mean([line[count] for line in lines], 0, most) for count in left]
    mean, low, high = (np.array([getattr(point, name) for point in points]) for name in ("mean", "low", "high"))
    return Band(order, len(lines), np.array(left, dtype=np.int64), mean, low, high)


def cuts(runs: Sequence[Mapping[str, int]], most: float) -> dict[str, SeedMean]:
    """The heads that each order can cut that every run of a row has. most: the heads of a run."""
    shared = [order for order in runs[0] if all(order in run for run in runs)]
    return {order: seed_mean([run[order] for run in runs], 0, most) for order in shared}


@dataclass(frozen=True)
class Appearance:
    """A phenomenon through training over seeds. steps: the half-rise step of each curve of `CURVES`, the mean over
    log(1 + step). verdicts: the runs in which the test over pairs finds that the effect or the margin is first, or
    cannot tell. later: log(1 + step) of the effect less that of the margin, for a test of their order; as steps between
    the kept ones are interpolated, it is no measure of how much later."""

    phenomenon: str
    runs: int
    steps: Mapping[str, SeedMean]
    verdicts: Mapping[str, int]
    later: SeedMean


def appearances(runs: Sequence[Sequence[Emergence]]) -> list[Appearance]:
    """The appearance of each phenomenon that every run has."""
    by_name = [{each.phenomenon: each for each in run} for run in runs]
    shared = [name for name in by_name[0] if all(name in each for each in by_name)]
    return [_appears(name, [each[name] for each in by_name]) for name in shared]


def _appears(phenomenon: str, runs: Sequence[Emergence]) -> Appearance:
    halves = {curve: np.log1p([each.half[curve][0] for each in runs]) for curve in CURVES}
    last = float(np.log1p(max(each.steps[-1] for each in runs)))
    steps = {curve: seed_mean(each, 0, last) for curve, each in halves.items()}
    later = seed_mean(halves["effect"] - halves["margin"])
    return Appearance(phenomenon, len(runs), steps, dict(Counter(each.first for each in runs)), later)


def rank_correlations(runs: Sequence[Guide]) -> dict[str, dict[str, SeedMean]]:
    """Rank correlation of each proxy with the true effect over the heads of a run, and the reliability of that effect,
    by proxy or `RELIABILITY` and by column, over runs."""
    columns = [name for name in runs[0].columns if all(name in run.columns for run in runs)]
    figures = [dict(zip((*PROXIES, RELIABILITY), (*run.rank, run.reliability), strict=True)) for run in runs]
    return {
        figure: {
            name: seed_mean(
                [own[figure][run.columns.index(name)] for run, own in zip(runs, figures, strict=True)], -1, 1
            )
            for name in columns
        }
        for figure in (*PROXIES, RELIABILITY)
    }


@dataclass(frozen=True)
class Aligned:
    """Alignment error rates of the cross heads of a run by the position that predicts a word, by weight, as Marian and
    CTranslate2 read it. best: the head with the least error on validation sentences; first: the first head of the last
    layer. errors: by name of head, on test sentences. baseline: of the best rule without attention, see `RULES`."""

    best: str
    first: str
    errors: Mapping[str, float]
    baseline: float

    @property
    def excess(self) -> float:
        """The error of the first head of the last layer less that of the best head."""
        return self.errors[self.first] - self.errors[self.best]


def aligned(arrays: Arrays) -> Aligned:
    """From the arrays of `gold` of one run."""
    look, when = VIEWS.index("weight"), WHENS.index("before")
    cross = [head for head in heads_named(arrays["head"]) if head.kind == "cross"]
    heads, first = list(map(str, cross)), str(Head(*cross[-1].place, 1))
    links = float(arrays["targets"].sum(dtype=np.int64) + arrays["pairs"].sum(dtype=np.int64))
    right = arrays["right"][:, look, :, when].sum(axis=0, dtype=np.int64)
    in_valid = arrays["valid.right"][:, look, :, when].sum(axis=0, dtype=np.int64)
    errors = dict(zip(heads, (1 - 2 * right / links).tolist(), strict=True))
    rule = int(arrays["valid.fixed"].sum(axis=0, dtype=np.int64).argmax())
    fixed = float(arrays["fixed"][:, rule].sum(dtype=np.int64))
    return Aligned(heads[int(in_valid.argmax())], first, errors, 1 - 2 * fixed / links)


@dataclass(frozen=True)
class Alignments:
    """Alignment over the runs of a row. best: the runs whose best head is the first of the last layer. layers: the runs
    whose best head is in each layer. chance: the share of cross heads that are the first of the last layer. errors: of
    the best head, of the first of the last layer, the mean of all heads, and the best rule without attention. excess:
    of the first over the best, paired within runs."""

    best: SeedCount
    layers: Mapping[str, int]
    chance: float
    errors: Mapping[str, SeedMean]
    excess: SeedMean


def alignments(runs: Sequence[Aligned]) -> Alignments:
    """The alignment of these runs."""
    errors = {
        "best": seed_mean([run.errors[run.best] for run in runs], 0, 1),
        "first": seed_mean([run.errors[run.first] for run in runs], 0, 1),
        "mean": seed_mean([float(np.mean(list(run.errors.values()))) for run in runs], 0, 1),
        "baseline": seed_mean([run.baseline for run in runs], 0, 1),
    }
    return Alignments(
        seed_count(run.best == run.first for run in runs),
        placed("best", [[run.best] for run in runs]).layers,
        float(np.mean([1 / len(run.errors) for run in runs])),
        errors,
        seed_mean([run.excess for run in runs], -1, 1),
    )
