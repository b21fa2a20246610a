"""Cutting heads one after another: curves by the number of heads left, and how many can go."""

from collections.abc import Collection, Iterator

import numpy as np
from matplotlib.axes import Axes

from headcount.heads.cutting_curves import RANDOM, Curve, curves, free_by_bleu, free_by_loss
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
    "{loss} nats a token, each by the upper end of a paired bootstrap interval (95 %)."
)
UNITS = {"loss": "nats a token", "worst": "%", "bleu": "BLEU"}
ENDPOINTS = {
    "loss": "loss, nats a token", "worst": "accuracy of the worst phenomenon, %", "bleu": "BLEU, greedy search"
}  # fmt: skip


def subject(results: Results) -> Subject | None:
    """Curves of loss, worst phenomenon and BLEU, and the heads that each order can cut."""
    arrays = results.get("cutting")
    if arrays is None:
        return None
    every, bounds = curves(arrays), results.bounds
    plots = tuple(_plot(every, endpoint) for endpoint in ENDPOINTS if len(getattr(every[0], endpoint)))
    by_bleu, by_loss = free_by_bleu(arrays, bounds.bleu), free_by_loss(arrays, bounds.loss)
    lines = tuple((NAMES.get(order, order), str(by_bleu[order]), str(by_loss[order])) for order in by_bleu)
    note = LIMITS.format(bleu=bounds.bleu, loss=bounds.loss)
    table = Table(("order", "heads, by BLEU", "heads, by loss"), lines, note)
    section = Section("How many heads can go?", (NOTE, Plots(plots), table))
    return Subject(section, tuple(_rows(every)), tuple(_findings(by_bleu.values(), len(arrays["head"]), bounds.bleu)))


def _plot(every: list[Curve], endpoint: str) -> Plot:
    random = [curve for curve in every if curve.name == RANDOM]

    def draw(axes: Axes) -> None:
        if random and endpoint != "bleu":
            low, high = np.quantile([getattr(curve, endpoint) for curve in random], [0.05, 0.95], axis=0)
            axes.fill_between(random[0].left, low, high, color="grey", alpha=0.25, linewidth=0, label="random orders")
        for index, curve in enumerate(each for each in every if each.name != RANDOM):
            colour, marker = style_of(index)
            name = NAMES.get(curve.name, curve.name)
            axes.plot(*curve.points(endpoint), color=colour, marker=marker, markersize=4, linewidth=1.4, label=name)
        axes.set_xlabel("heads left")
        axes.set_ylabel(ENDPOINTS[endpoint])
        axes.invert_xaxis()
        axes.legend(loc="best", fontsize=7)

    return plot(f"cutting_{endpoint}", f"{ENDPOINTS[endpoint]}, by the number of heads left", draw)


def _rows(every: list[Curve]) -> Iterator[Row]:
    for curve in (curve for curve in every if curve.name != RANDOM):
        for endpoint in ENDPOINTS:
            for left, value in zip(*curve.points(endpoint), strict=True):
                yield Row(f"{left} left", f"cutting.{curve.name}", endpoint, float(value), unit=UNITS[endpoint])


def _findings(cuts: Collection[int], heads: int, bound: float) -> Iterator[str]:
    # Not the best order alone: which one that is was not chosen on other sentences.
    least, most = min(cuts), max(cuts)
    number = str(most) if least == most else f"{least} to {most}, by the order of cutting,"
    yield f"{number} of {heads} heads can go for less than {bound} BLEU without training afterwards."
