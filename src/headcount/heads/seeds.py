"""Figures over seeds: the figures of each run, grouped by row of the sweep, with t intervals and shares of runs.

A run is one observation: it enters with one figure, whatever the number of its sentences and heads. Heads of different
seeds have no common names, so figures are those of the run, of a layer, of its best head or of matched heads.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from headcount.heads.cutting_curves import RANDOM
from headcount.heads.importance import PROXIES
from headcount.heads.interface import KINDS, Head, heads_named
from headcount.heads.links import PHENOMENA
from headcount.heads.replication import half, match, same_pairs, shares
from headcount.heads.results import POINTS, Results, Row, Study
from headcount.heads.roles import NEAR, positional_heads
from headcount.heads.statistics import LOSS, effect_table, pair_scores
from headcount.heads.table import (
    ALL,
    BEST,
    CUTTING_UNITS,
    FIRST,
    TRANSLATES,
    UNITS,
    Rows,
    aligned,
    cuts,
    cutting,
    framed,
    importance,
    rows,
    twins,
)
from headcount.heads.table import training as half_rises
from headcount.heads.table import without_source as table_floors
from headcount.heads.twin_shares import largest_share
from headcount.report.page import guarded
from headcount.statistics.max_t import DRAWS, ERROR, EffectTable
from headcount.statistics.planned import holm

FAMILY = ERROR / 3
"""The error of each of three families of tests on a page: within its runs, and each of `FAMILIES`."""
FAMILIES = (("twins.layer", "twins.largest"), ("training.later",))
COUNT = "share of runs"
SHARE = 0.5  # of a phenomenon's margin that the removal of a specialist costs
SELECTIVE, ELSEWHERE = 20, 10  # points of accuracy that a selective head costs: more than, and elsewhere at most


class SeedMean(NamedTuple):
    """The mean of a figure over the runs that have it. low, high: its 95 % t interval over seeds; p: of a t test
    against 0. The interval is NaN, and p is 1, for fewer than three runs and for runs that are all equal."""

    runs: int
    mean: float
    low: float
    high: float
    p: float


def seed_mean(values: ArrayLike, low: float = -np.inf, high: float = np.inf) -> SeedMean:
    """The mean of values that are not NaN; the interval ends at the bounds of the figure, low and high."""
    known = np.asarray(values, dtype=np.float64)
    known, nan = known[~np.isnan(known)], float("nan")
    mean = float(known.mean()) if len(known) else nan
    if len(known) < 3 or np.isclose(known.min(), known.max(), rtol=1e-12):
        return SeedMean(len(known), mean, nan, nan, 1.0)
    error, free = float(known.std(ddof=1) / np.sqrt(len(known))), len(known) - 1
    half, p = float(stats.t.isf(ERROR / 2, free)) * error, float(2 * stats.t.sf(abs(mean) / error, free))
    return SeedMean(len(known), mean, max(mean - half, low), min(mean + half, high), p)


def seed_share(found: int, runs: int) -> tuple[float, float, float]:
    """The share of runs with its 95 % interval (Clopper and Pearson 1934); a single run has none."""
    interval = stats.binomtest(found, runs).proportion_ci(1 - ERROR, method="exact")
    ends = (float(interval.low), float(interval.high)) if runs > 1 else (float("nan"),) * 2
    return found / runs, *ends


def counted(endpoint: str, name: str, heads: Iterable[str]) -> Rows:
    """Whether a run has a head for something, and the layers with one."""
    layers = sorted({str(head.place) for head in heads_named(heads)})
    yield Row("", endpoint, name, float(bool(layers)), unit=COUNT)
    yield from (Row(layer, endpoint, name, 1.0, unit=COUNT) for layer in layers)


def sure(table: EffectTable, error: float) -> NDArray[np.bool_]:
    """The effects of a table that differ from 0 within a run, for all runs of the page at once."""
    return np.asarray(table.p <= error)


def draws(error: float) -> int:
    """The resamples of a table whose smallest p-value is below the error."""
    return max(DRAWS, math.ceil(1.5 / error))


def specialists(run: Results, error: float) -> Rows:
    """Heads whose removal costs `SHARE` of the margin of a phenomenon or more."""
    table = effect_table(run.parts["ablation"], draws=draws(error))
    large = sure(table, error) & (shares(table.harm, table.whole) >= SHARE)
    for column, name in enumerate(table.columns):
        if name != LOSS:
            yield from counted("recurrence", name, np.array(table.rows)[large[:, column]])


def selectivity(run: Results, error: float) -> Rows:
    """The head whose removal costs most accuracy in a phenomenon, chosen on half of the pairs: the points that it costs
    on the other half there, and most in any other phenomenon; selective if these are above 20, and at most 10."""
    halves, costs = [half(run.parts["ablation"], number) for number in (0, 1)], []
    names = np.unique(halves[1]["phenomenon"]).tolist()  # a single pair of a phenomenon is in the other half
    for arrays in halves:
        scores = pair_scores(arrays, "zero", "accuracy")
        means = [scores[:, arrays["phenomenon"] == name].mean(axis=1) for name in names]
        costs.append(np.array([each[0] - each[1:] for each in means]).T)  # [head, phenomenon]
    for column, name in enumerate(names):
        head = int(costs[0][:, column].argmax())
        there, elsewhere = costs[1][head, column], np.delete(costs[1][head], column).max(initial=0)
        found = there > SELECTIVE and elsewhere <= ELSEWHERE
        yield from counted("selective", name, [run.heads[head]] if found else [])
        yield Row("", "selective.there", name, float(there), -100, 100, unit=POINTS)
        yield Row("", "selective.elsewhere", name, float(elsewhere), -100, 100, unit=POINTS)


def cue_layers(run: Results, error: float) -> Rows:
    for row in rows(twins, run):
        if Head.parse(row.head) is None:
            yield Row(row.head, "twins.layer", row.column, row.estimate, unit=row.unit)


def cue_heads(run: Results, error: float) -> Rows:
    """The largest share of a head, which is chosen on half of the pairs and measured on the other half."""
    for name in np.unique(run.parts["twins"]["phenomenon"]).tolist():
        yield Row("", "twins.largest", name, largest_share(run.parts["twins"], name), unit="share")


def claimed(run: Results, error: float) -> Rows:
    """Heads for which each relation is claimed, and those that follow it."""
    for name in dict.fromkeys((*PHENOMENA, *(claim.relation for claim in run.claims()))):
        own = [claim for claim in run.claims() if claim.relation == name]
        yield from counted("role", name, [claim.head for claim in own if claim.claimed])
        yield from counted("role", f"{name}, follows", [claim.head for claim in own if claim.attends])


def positional(run: Results, error: float) -> Rows:
    """Positional heads by kind and offset."""
    names, offsets = {offset: name for name, offset in NEAR.items()}, positional_heads(run.parts["roles"])
    found = [(head.split(".")[0].rstrip("0123456789"), names.get(at, "farther"), head) for head, at in offsets.items()]
    for kind in sorted(KINDS):
        for near in sorted([*NEAR, "farther"]):
            own = [head for *where, head in found if where == [kind, near]]
            yield from counted("role", f"positional, {kind}, {near}", own)


def alignment(run: Results, error: float) -> Rows:
    """Alignment error by weight before the word: of the cross head that is best on validation sentences, of the first
    of the last layer, which Marian and CTranslate2 take by default, of all and of the best rule without attention."""
    own = [row for row in rows(aligned, run) if row.endpoint == "alignment.error"]
    heads = [row for row in own if row.column == TRANSLATES]
    if not heads:
        return
    best = next(row for row in heads if row.verdict == BEST)
    first = next((row for row in heads if row.verdict == FIRST), best)  # which has one verdict
    mean = sum(row.estimate for row in heads) / len(heads)
    found = {"best": best.estimate, "first": first.estimate, "mean": mean, "baseline": own[0].estimate}
    for name, value in found.items():
        yield Row("", "alignment.error", name, value, 0, 1, unit="error rate")
    yield Row("", "alignment.error", "first less best", first.estimate - best.estimate, -1, 1, unit="error rate")
    yield Row("", "alignment.first_is_best", "best", float(best == first), unit=COUNT)


def proxies(run: Results, error: float) -> Rows:
    """Rank correlations over heads, by proxy, and the reliability."""
    order = [*(f"proxy.{proxy}.rank" for proxy in PROXIES), "proxy.reliability"]
    found = [row for row in rows(importance, run) if row.head == ALL]
    for row in sorted(found, key=lambda row: order.index(row.endpoint)):
        yield row._replace(head="", low=-1, high=1)


def without_source(run: Results, error: float) -> Rows:
    """The accuracies of models that never see the source."""
    for row in rows(table_floors, run):
        yield row._replace(head="", low=0, high=100)


def curves(run: Results, error: float) -> Rows:
    """Curves by endpoint, those of random orders last, and the heads that can go within the bound of BLEU."""
    limits = rows(cuts, run)
    points = [*rows(cutting, run)]
    points += [row for row in limits if row.endpoint == f"cutting.{RANDOM}"]
    for row in sorted(points, key=lambda row: list(CUTTING_UNITS).index(row.column)):
        yield row._replace(low=0, high=np.inf if row.column == "loss" else 100)
    for row in limits:
        if row.endpoint.startswith("cut.") and row.column == "bleu":
            yield row._replace(head="", low=0, high=len(run.heads))


def training(run: Results, error: float) -> Rows:
    """Logarithms of half-rise steps, and that of the effect less that of the margin, which share their unit."""
    last = float(np.log1p(run.parts["training"]["step"][-1]))
    found = {(row.column, row.endpoint.split(".")[1]): float(np.log1p(row.estimate)) for row in rows(half_rises, run)}
    for (name, curve), value in found.items():
        yield Row("", f"training.{curve}.log_half_rise", name, value, 0, last, unit="log(1 + step)")
        if curve == "effect" and (name, "margin") in found:
            yield Row("", "training.later", name, value - found[name, "margin"], unit="log(1 + step)")


FIGURES: dict[Callable[[Results, float], Rows], tuple[str, ...]] = {
    specialists: ("ablation",),
    cue_layers: ("twins",),
    cue_heads: ("twins",),
    claimed: ("roles", "gold", "ablation"),
    positional: ("roles",),
    alignment: ("gold",),
    proxies: ("importance", "ablation"),
    curves: ("cutting",),
    training: ("training",),
    without_source: ("floor",),
}
"""The parts that the figures of each function need, in the order of heads.csv."""


def over_runs(
    figures: Callable[[Results, float], Rows], runs: Mapping[str, Sequence[Results]], error: float
) -> Iterator[tuple[str, Row]]:
    """The mean, or the share of runs, of each figure of the runs of each row. low, high: the bounds of a figure."""
    groups: dict[tuple[str, str, str, str, str], list[Row]] = {}
    for label, own in runs.items():
        for row in (row for run in own for row in figures(run, error)):
            groups.setdefault((label, row.head, row.endpoint, row.column, row.unit), []).append(row)
    for (label, place, endpoint, column, unit), found in groups.items():
        names, values = (f"{label}:{place}" if place else label, endpoint, column), [row.estimate for row in found]
        if unit == COUNT:
            share = seed_share(int(sum(values)), len(runs[label]))
            yield label, Row(*names, *share, runs=len(runs[label]), unit=unit)
        else:
            low = min((row.low for row in found if row.low is not None), default=-np.inf)
            high = max((row.high for row in found if row.high is not None), default=np.inf)
            mean = seed_mean(values, low, high)
            yield label, Row(*names, *mean[1:], runs=mean.runs, unit=unit)


def replicated(runs: Mapping[str, Sequence[Results]], error: float) -> Iterator[tuple[str, Row]]:
    """Runs with a head for each phenomenon, and the mean effects of matched heads. Raises InputError for runs measured
    on different designs."""
    same_pairs([run.parts["ablation"] for own in runs.values() for run in own])
    yield from over_runs(specialists, runs, error)
    yield from over_runs(selectivity, runs, error)
    yield from matched(runs, error)


def matched(runs: Mapping[str, Sequence[Results]], error: float) -> Iterator[tuple[str, Row]]:
    """Mean effects of matched heads, on the pairs that they were not matched on, of each row with two runs or more of
    the same heads; verdict: in how many runs the effect differs from 0 on these pairs."""
    for label, own in runs.items():
        others = [half(run.parts["ablation"], 1) for run in own]
        if len(own) < 2 or len({run.heads for run in own}) > 1 or not len(others[0]["phenomenon"]):
            continue
        found = match([run.parts["ablation"] for run in own])
        for name, value, p in (("observed", found.similarity, found.p), ("at random", found.null, None)):
            yield label, Row(label, "matched.similarity", name, value, p=p, runs=len(own), unit="similarity")
        for endpoint in ("margin", "accuracy"):  # the first is the one that a picture shows; it has more power
            tables = [effect_table(each, "zero", endpoint, draws=draws(error)) for each in others]
            pairs = list(zip(tables, found.heads, strict=True))
            effects = np.stack([table.estimate[order] for table, order in pairs])
            differs = np.stack([sure(table, error)[order] for table, order in pairs]).sum(axis=0)
            for head, column in np.ndindex(*differs.shape):
                name = tables[0].columns[column]
                if name != LOSS or endpoint == "margin":
                    _, mean, low, high, _ = seed_mean(effects[:, head, column])
                    names = f"{label}:{found.names[head]}", f"matched.{endpoint}", name
                    verdict, unit = f"differs in {differs[head, column]}", UNITS[endpoint]
                    yield label, Row(*names, mean, low, high, None, verdict, len(own), unit)


def seed_table(study: Study, debug: bool = False) -> tuple[pd.DataFrame, list[str]]:
    """The table of heads.csv of a sweep, see `framed`, with row, the label, and flags of what failed. sure: found by a
    t test over seeds, all cells of its family at once; of matched heads: in a run."""
    flags: list[str] = []
    error = FAMILY / max(len(study.runs), 1)
    found: list[tuple[str, Row]] = []
    for figures, parts in FIGURES.items():
        runs = study.having(*parts)
        make = partial(replicated if figures is specialists else partial(over_runs, figures), runs, error)
        found += guarded(figures.__name__, make, flags, debug) if runs else []
    table = framed(row for _, row in found)
    table["row"] = [label for label, _ in found]
    table["place"] = [row.head.removeprefix(f"{label}:") for label, row in found]
    never = table.groupby("column")["estimate"].transform("sum").eq(0) & table["column"].str.startswith("positional")
    table = table[~never].reset_index(drop=True)
    table["sure"] = table["verdict"].str.contains(r"differs in [1-9]")
    for family in FAMILIES:
        own = table["endpoint"].isin(family)
        table.loc[own, "sure"] = holm(table.loc[own, "p"]) <= FAMILY
    table.loc[table["endpoint"] != "matched.similarity", "p"] = None
    return table, flags
