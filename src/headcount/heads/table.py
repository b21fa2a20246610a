"""The table of heads.csv: what the arrays of each part of one run say, a row for each head, endpoint and column."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headcount.heads.ablation import KINDS
from headcount.heads.bleu import bleu_table
from headcount.heads.cutting_curves import RANDOM, curves, free
from headcount.heads.development import CURVES, emergence
from headcount.heads.floor import floors
from headcount.heads.importance import PROXIES, guide
from headcount.heads.interactions import interaction_table, redundancies
from headcount.heads.links import WHENS, alignment, aligns
from headcount.heads.observed import VIEWS
from headcount.heads.results import POINTS, SENTENCE, Results, Row
from headcount.heads.roles import role_figures
from headcount.heads.shapley import values
from headcount.heads.statistics import LOSS
from headcount.heads.twin_shares import direct_paths, encoder_limit, twin_shares
from headcount.report.page import guarded
from headcount.statistics.max_t import EffectTable, Ratio

Rows = Iterator[Row]
ALL = "all heads"
WHOLE = "whole model"
SHOWN = 0.1  # share of the smallest path of a circuit
UNITS = {"accuracy": POINTS, "sensitivity": POINTS, "margin": SENTENCE, LOSS: SENTENCE, "bleu": "BLEU"}
UNITS |= {"interaction": SENTENCE}
SHARES = ("accuracy", "sensitivity")  # of pairs, in %
ROLE_UNITS = {"distance": "tokens", "entropy": "nats"}  # all others are shares
CUTTING_UNITS = {"loss": "nats per token", "worst": "%", "bleu": "BLEU"}
CURVE_UNITS = {"accuracy": "%", "margin": SENTENCE, "effect": SENTENCE}
BEST, FIRST = "best", "first of the last layer"
TRANSLATES = "weight, before the word"  # the column of what `translate` writes


def of_effects(table: EffectTable, kind: str, endpoint: str, loss: str = "") -> Rows:
    """A row for each cell of a table. loss: the endpoint of the column of the loss, which is left out without one."""
    for row, column in np.ndindex(*table.estimate.shape):
        measure = loss if table.columns[column] == LOSS else endpoint
        if measure:
            figures = cell((row, column), table.estimate, table.low, table.high)
            if measure in SHARES:  # of pairs, so the whole model's can fall to 0 and rise to 100
                whole = float(table.whole[column])
                figures = figures[0], max(figures[1], -whole), min(figures[2], 100 - whole)
            p, verdict = float(table.p[row, column]), str(table.verdict[row, column])
            names = table.rows[row], f"{kind}.{measure}", table.columns[column]
            yield Row(*names, *figures, p, verdict, unit=UNITS[measure])


def cell(at: tuple[int, ...], estimate: NDArray, low: NDArray, high: NDArray) -> tuple[float, float, float]:
    """Estimate, low and high of a cell."""
    return float(estimate[at]), float(low[at]), float(high[at])


def of_ratio(found: Ratio, at: tuple[int, ...] = ()) -> tuple[float, float, float]:
    return cell(at, found.value, found.low, found.high)


def ablation(run: Results) -> Rows:
    """Effects of every kind of ablation on loss, margin and accuracy; of zero ablation on sensitivity."""
    for kind in KINDS:
        yield from of_effects(run.effects(kind, "accuracy"), kind, "accuracy")
        yield from of_effects(run.effects(kind, "margin"), kind, "margin", LOSS)
    yield from of_effects(run.effects("zero", "sensitivity"), "zero", "sensitivity")


def bleu(run: Results) -> Rows:
    return of_effects(bleu_table(run.parts["bleu"], run.bounds.bleu), "zero", "bleu")


def roles(run: Results) -> Rows:
    """Where each head attends, whatever the effect."""
    heads = run.parts["roles"]["head"].tolist()
    for name, ratio in role_figures(run.parts["roles"]).items():
        for number, head in enumerate(heads):
            if np.isfinite(ratio.value[number]):
                yield Row(head, "role", name, *of_ratio(ratio, (number,)), unit=ROLE_UNITS.get(name, "share"))


def twins(run: Results) -> Rows:
    """Shares of the way to the twin, of heads and of layers."""
    for level in ("head", "layer"):
        yield from of_shares(twin_shares(run.parts["twins"], level), "twins.share")


def of_shares(found: EffectTable, endpoint: str) -> Rows:
    """Shares of the way to the twin; clear: the interval excludes 0."""
    for at in np.ndindex(*found.estimate.shape):
        share, low, high = cell(at, found.estimate, found.low, found.high)
        verdict = "clear" if low > 0 or high < 0 else "inconclusive"
        yield Row(found.rows[at[0]], endpoint, found.columns[at[1]], share, low, high, verdict=verdict, unit="share")


def paths(run: Results) -> Rows:
    """The direct paths of the circuit of each phenomenon."""
    shares = [row for row in of_shares(direct_paths(run.parts["paths"]), "paths.share") if row.verdict == "clear"]
    return (row for row in sorted(shares, key=lambda row: row.column) if abs(row.estimate) >= SHOWN)


def importance(run: Results) -> Rows:
    """Proxies by gradient, and their rank correlations with what they estimate, where they are known."""
    found = guide(run.parts["importance"], run.parts["ablation"], run.parts.get("twins"))
    for column, name in enumerate(found.columns):
        figures: list[tuple[str, str, float]] = []
        for number, proxy in enumerate(PROXIES):
            figures.append((ALL, f"proxy.{proxy}.rank", float(found.rank[number, column])))
            if name == LOSS or proxy != "loss_importance":  # which has one figure a head
                values = found.proxies[proxy][:, column].tolist()
                figures += ((head, f"proxy.{proxy}", value) for head, value in zip(found.heads, values, strict=True))
        for head, endpoint, value in (*figures, (ALL, "proxy.reliability", float(found.reliability[column]))):
            if not np.isnan(value):
                yield Row(head, endpoint, name, value, unit="rank correlation" if head == ALL else SENTENCE)


def pairs(run: Results) -> Rows:
    """Interactions of pairs of heads; a single head has none."""
    if len(run.parts["pairs"]["pair"]):
        table = interaction_table(run.parts["pairs"], run.bounds)
        yield from of_effects(table, "pairs", "interaction", "interaction")


def shapley(run: Results) -> Rows:
    return iter(sorted(values(run.parts["shapley"]), key=lambda row: -row.estimate))


def cutting(run: Results) -> Rows:
    """Loss, worst phenomenon and BLEU by the number of heads left, of each order."""
    for curve in curves(run.parts["cutting"]):
        for endpoint, unit in CUTTING_UNITS.items():
            for left, value in zip(*curve.points(endpoint), strict=True):
                if curve.name != RANDOM:
                    yield Row(f"{left} left", f"cutting.{curve.name}", endpoint, float(value), unit=unit)


def training(run: Results) -> Rows:
    """The half-rise steps of each phenomenon whose curves rise."""
    for each in emergence(run.parts["training"]) if len(run.parts["training"]["phenomenon"]) else ():
        for curve, (step, low, high) in each.half.items():
            if np.isfinite(step):
                names = each.head, f"training.{curve}.half_rise", each.phenomenon
                yield Row(*names, step, low, high, verdict=each.first, unit="step")


def whole(run: Results) -> Rows:
    """The figures of the whole model, which the effects change."""
    for endpoint, unit in {"margin": SENTENCE, "accuracy": "%", "sensitivity": "%"}.items():
        table = run.effects("zero", endpoint)
        for name, value in zip(table.columns, table.whole.tolist(), strict=True):
            if name != LOSS:
                yield Row(WHOLE, f"whole.{endpoint}", name, value, unit=unit)
    loss = run.effects("zero", "margin")
    yield Row(WHOLE, "whole.loss", LOSS, float(loss.whole[loss.columns.index(LOSS)]), unit=SENTENCE)


def without_source(run: Results) -> Rows:
    """The accuracies of models that never see the source."""
    for model, name, value in floors(run.parts["floor"]):
        yield Row(WHOLE, f"floor.{model}", name, value, unit="%")


def encoder(run: Results) -> Rows:
    """The share of the encoder's whole output at aligned words: the most that encoder heads can have."""
    return of_shares(encoder_limit(run.parts["twins"]), "twins.limit")


def links(run: Results) -> Rows:
    """How much more often than all baselines a head follows a gold link, and the margin that its loss costs."""
    for each in run.claims():
        link = f"{each.relation}, {each.direction}"
        verdict = "role" if each.claimed else "follows" if each.attends else "inconclusive"
        yield Row(each.head, "link.gain", link, each.gain, each.low, verdict=verdict, unit="share")
        lost = "differs" if each.matters else "inconclusive"
        if each.phenomenon:
            yield Row(each.head, "link.lost", each.phenomenon, each.relative, p=each.p, verdict=lost, unit="share")


def aligned(run: Results) -> Rows:
    """Alignment error rates of cross heads, and their excess over the best rule without attention."""
    arrays = run.parts["gold"]
    if not aligns(arrays):
        return
    found = alignment(arrays)
    rule = "same relative place" if found.rule == "diagonal" else f"offset {found.rule}"
    yield Row(f"rule: {rule}", "alignment.error", "no attention", *of_ratio(found.baseline), unit="error rate")
    marks = {found.marian: FIRST, found.best: BEST}
    for cell in np.ndindex(*found.errors.value.shape):
        column = f"{VIEWS[cell[0]]}, {WHENS[cell[2]]} the word"
        for endpoint, ratio in (("error", found.errors), ("excess", found.excess)):
            names = found.heads[cell[1]], f"alignment.{endpoint}", column
            yield Row(*names, *of_ratio(ratio, cell), verdict=marks.get(cell, ""), unit="error rate")


def redundant(run: Results) -> Rows:
    """Pairs of heads of which each is free to cut and both together are not: what both cost beyond the sum."""
    return iter(redundancies(run.parts["pairs"], run.bounds) if len(run.parts["pairs"]["pair"]) else ())


def cuts(run: Results) -> Rows:
    """The heads that each order can cut within the bounds, and the curves of random orders: mean, 5 and 95 %."""
    arrays, bounds = run.parts["cutting"], run.bounds
    limits = {"bleu": free(arrays, "bleu", bounds.bleu), "loss": free(arrays, "loss", bounds.loss)}
    for order in limits["bleu"]:
        for endpoint, most in limits.items():
            yield Row(ALL, f"cut.{order}", endpoint, float(most[order]), unit="heads")
    drawn = [curve for curve in curves(arrays) if curve.name == RANDOM]
    for endpoint, unit in CUTTING_UNITS.items():
        at: dict[int, list[float]] = {}
        for curve in drawn:
            for left, value in zip(*curve.points(endpoint), strict=True):
                at.setdefault(int(left), []).append(float(value))
        for left, every in sorted(at.items()):
            low, high = np.quantile(every, [0.05, 0.95]).tolist()
            yield Row(f"{left} left", f"cutting.{RANDOM}", endpoint, float(np.mean(every)), low, high, unit=unit)


def steps(run: Results) -> Rows:
    """The curves of each phenomenon at the steps that were kept."""
    for each in emergence(run.parts["training"]) if len(run.parts["training"]["phenomenon"]) else ():
        for curve in CURVES:
            for step, value in zip(each.steps.tolist(), getattr(each, curve).tolist(), strict=True):
                yield Row(f"step {step}", f"training.{curve}", each.phenomenon, value, unit=CURVE_UNITS[curve])


PARTS: dict[Callable[[Results], Rows], tuple[str, ...]] = {
    ablation: ("ablation",),
    bleu: ("bleu",),
    roles: ("roles",),
    twins: ("twins",),
    paths: ("twins", "paths"),
    importance: ("importance", "ablation"),
    pairs: ("pairs",),
    shapley: ("shapley",),
    cutting: ("cutting",),
    training: ("training",),
    whole: ("ablation",),
    without_source: ("floor",),
    encoder: ("twins",),
    links: ("roles", "gold", "ablation"),
    aligned: ("gold",),
    redundant: ("pairs",),
    cuts: ("cutting",),
    steps: ("training",),
}
"""The parts that the rows of each function need, in the order of heads.csv."""


@cache
def rows(function: Callable[[Results], Rows], run: Results) -> tuple[Row, ...]:
    """The rows of a function of `PARTS`, which a sweep reads again."""
    return tuple(function(run))


def run_rows(run: Results, debug: bool = False) -> tuple[list[Row], list[str]]:
    """The rows of a run, and a flag for each part whose rows failed; debug: raise its exception instead."""
    found: list[Row] = []
    flags: list[str] = []
    for function, parts in PARTS.items():
        if run.parts.keys() >= set(parts):
            found += guarded(function.__name__, partial(rows, function, run), flags, debug)
    return found, flags


def framed(lines: Iterable[Row]) -> pd.DataFrame:
    """The rows as a table with more columns for views.

    kind, layer: of the head, such as cross and cross2; empty for what is no head. level: "head", "layer" or "". harm:
    an effect with the sign of harm. sure: whether it is told from chance. left, step: numbers in the name, if it
    has them. first, second: heads of a pair or a path. order: the endpoint after its first dot.
    """
    table = pd.DataFrame(list(lines), columns=list(Row._fields))
    table = table.astype(dict.fromkeys(("estimate", "low", "high", "p", "runs"), float))
    named = table["head"].str.extract(r"(?:^|:)(?P<layer>(?P<kind>encoder|decoder|cross)\d+)(?P<number>\.\w+)?$")
    table["kind"], table["layer"] = named["kind"].fillna(""), named["layer"].fillna("")
    table["level"] = np.where(named["number"].notna(), "head", np.where(table["layer"] != "", "layer", ""))
    rises = (table["column"] == LOSS) | table["endpoint"].str.startswith("pairs")
    table["harm"] = np.where(rises, table["estimate"], -table["estimate"])
    table["sure"] = table["verdict"].isin(["differs", "clear", "role", "follows"])
    table["left"] = table["head"].str.extract(r"(\d+) left$", expand=False).astype(float)
    table["step"] = table["head"].str.extract(r"step (\d+)$", expand=False).astype(float)
    table[["first", "second"]] = table["head"].str.extract(r"^(\S+) [+>] (\S+)$")
    table["order"] = table["endpoint"].str.extract(r"^[^.]*\.(.*)$", expand=False).fillna("")
    return table


def heads_csv(table: pd.DataFrame) -> str:
    """The text of heads.csv, a line for each row."""
    return str(table[list(Row._fields)].to_csv(index=False, float_format="%.6g", lineterminator="\n"))
