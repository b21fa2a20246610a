"""Cutting heads one after another: curves by the number of heads left, and how many can go."""

from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes

from headcount.heads.cutting_curves import RANDOM, Curve, Limit, above_chance, areas, curves, free_by_bleu, free_by_loss
from headcount.heads.results import Results, Row, Subject
from headcount.report.axes import plot, style_of
from headcount.report.blocks import Plots, Section
from headcount.report.plot import Plot
from headcount.report.table import Table

NAMES = {
    "gradient": "importance once, normalised by layer",
    "gradient_raw": "importance once",
    "gradient_again": "importance after each cut",
    "greedy": "true loss after each cut",
    "hard_concrete": "hard concrete gates",
}
NOTE = (
    "Heads are switched off one after another (output 0, no training afterwards), in orders chosen on validation "
    "sentences, gates on training sentences; the curves are of test sentences. Grey: the middle 90 % of random orders."
)
LIMITS = (
    "Heads that can go: for less than {bleu} BLEU (greedy search, at a few points of the curve), for less than "
    "{loss} nats a token, each by the upper end of a paired bootstrap interval (95 %); and before the accuracy "
    "of one phenomenon can no longer be distinguished from chance: its Wilson interval (95 %) includes 50 %. That is "
    "no proof of chance: with few pairs the interval is wide. Mean loss: over the share of heads left; beside it the "
    "share of random orders with more."
)
UNCLEAR = "then not distinguishable from 50 %"
UNITS = {"loss": "nats a token", "worst": "%", "bleu": "BLEU"}
PLOTS = {"loss": "loss, nats a token", "worst": "accuracy of the worst phenomenon, %"}


def subject(results: Results) -> Subject | None:
    """Curves of loss, worst phenomenon and BLEU, and the heads that each order can cut."""
    arrays = results.get("cutting")
    if arrays is None:
        return None
    every, bounds = curves(arrays), results.bounds
    plots = [_plot(every, endpoint) for endpoint in PLOTS if endpoint == "loss" or every[0].phenomena]
    limits = zip(
        free_by_bleu(arrays, bounds.bleu),
        free_by_loss(arrays, bounds.loss),
        above_chance(arrays),
        areas(arrays),
        strict=True,
    )
    lines, headers = [], ["order", "heads, by BLEU", "heads, by loss"]
    headers += ["heads, by chance", UNCLEAR] * bool(every[0].phenomena) + [
        f"mean loss, {UNITS['loss']}",
        "better than random",
    ]
    bests: list[Limit] = []
    for bleu, loss, chance, area in limits:
        bests.append(bleu)
        by_chance = str(chance.cut) if chance.counted else "–"
        phenomena = (by_chance, chance.reason or "none") if every[0].phenomena else ()
        better = "" if area.better is None else f"{100 * area.better:.0f} %"
        name = NAMES.get(bleu.order, bleu.order)
        lines.append((name, str(bleu.cut), str(loss.cut), *phenomena, f"{area.loss:.2f}", better))
    blocks = (
        NOTE,
        Plots((*plots, _bleu_plot(every))),
        Table(
            tuple(headers),
            tuple(lines),
            LIMITS.format(bleu=bounds.bleu, loss=bounds.loss),
            frozenset({0, headers.index(UNCLEAR)} if UNCLEAR in headers else {0}),
        ),
    )
    return Subject(
        Section("How many heads can go?", blocks),
        tuple(_rows(every)),
        tuple(_findings(bests, every[0].heads, bounds.bleu)),
    )


def _plot(every: list[Curve], endpoint: str) -> Plot:
    def draw(axes: Axes) -> None:
        _band(axes, [curve for curve in every if curve.name == RANDOM], endpoint)
        for index, curve in enumerate(each for each in every if each.name != RANDOM):
            _line(axes, index, curve.name, curve.left, getattr(curve, endpoint))
        _finish(axes, PLOTS[endpoint])

    return plot(f"cutting_{endpoint}", f"{PLOTS[endpoint]}, by the number of heads left", draw)


def _bleu_plot(every: list[Curve]) -> Plot:
    def draw(axes: Axes) -> None:
        for index, curve in enumerate(each for each in every if each.name != RANDOM):
            _line(axes, index, curve.name, curve.bleu_left, curve.bleu)
        _finish(axes, "BLEU, greedy search")

    return plot("cutting_bleu", "BLEU by the number of heads left", draw)


def _band(axes: Axes, drawn: list[Curve], endpoint: str) -> None:
    if drawn:
        low, high = np.quantile([getattr(curve, endpoint) for curve in drawn], [0.05, 0.95], axis=0)
        axes.fill_between(drawn[0].left, low, high, color="grey", alpha=0.25, linewidth=0, label="random orders")


def _line(axes: Axes, index: int, name: str, left: np.ndarray, values: np.ndarray) -> None:
    colour, marker = style_of(index)
    axes.plot(left, values, color=colour, marker=marker, markersize=4, linewidth=1.4, label=NAMES.get(name, name))


def _finish(axes: Axes, label: str) -> None:
    axes.set_xlabel("heads left")
    axes.set_ylabel(label)
    axes.invert_xaxis()
    axes.legend(loc="best", fontsize=7)


def _rows(every: list[Curve]) -> Iterator[Row]:
    for curve in (curve for curve in every if curve.name != RANDOM):
        endpoints = {name: (curve.left, getattr(curve, name)) for name in PLOTS if name == "loss" or curve.phenomena}
        for name, (left, values) in {**endpoints, "bleu": (curve.bleu_left, curve.bleu)}.items():
            for count, value in zip(left.tolist(), values.tolist(), strict=True):
                yield Row(f"{count} left", f"cutting.{curve.name}", name, value, unit=UNITS[name])


def _findings(limits: list[Limit], heads: int, bound: float) -> Iterator[str]:
    # Not the best order alone: which one that is was not chosen on other sentences.
    least, most = min(limit.cut for limit in limits), max(limit.cut for limit in limits)
    number = str(most) if least == most else f"{least} to {most}, by the order of cutting,"
    yield f"{number} of {heads} heads can go for less than {bound} BLEU without training afterwards."
