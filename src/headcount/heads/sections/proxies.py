"""Rank correlation of gradient importance with the effect of removing each head."""

from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes

from headcount.heads.importance import PROXIES, Guide, guide
from headcount.heads.interface import heads_named
from headcount.heads.results import SENTENCE, Figures, Results, Row, Subject
from headcount.report.axes import plot, style_of
from headcount.report.blocks import Plots, Section
from headcount.report.plot import Plot
from headcount.report.table import Table, interval

NAMES = {"importance": "importance", "first_order": "first-order estimate"}
NOTE = (
    "Importance: the mean absolute gradient of the loss with respect to a head's gate (Michel et al. 2019), on "
    "validation sentences. First-order estimate: the negative mean gradient. Truth: the harm of an output of 0, on "
    "test sentences."
)
INTERVALS = (
    "Spearman's rank correlation over heads. Intervals (95 %, each for itself) are over sentences; the heads are fixed."
)


def subject(results: Results) -> Subject | None:
    """A plot for each proxy of the loss, and the rank correlations by column."""
    gradients, ablated = results.get("importance"), results.get("ablation")
    if gradients is None or ablated is None:
        return None
    found = guide(gradients, ablated)
    plots = tuple(_plot(found, proxy) for proxy in PROXIES)
    lines = tuple((name, *_line(found, column)) for column, name in enumerate(found.columns))
    headers = ["column"]
    for proxy in PROXIES:
        headers += [NAMES[proxy], "95 % interval"]
    section = Section(
        "Is importance by gradient a good guide?", (NOTE, Plots(plots), Table(tuple(headers), lines, INTERVALS))
    )
    return Subject(section, tuple(_rows(found)), tuple(_findings(found)), _figures(found))


def _line(found: Guide, column: int) -> Iterator[str]:
    for proxy in range(len(PROXIES)):
        known = not np.isnan(found.rank[proxy, column])
        yield f"{found.rank[proxy, column]:+z.2f}" if known else "–"
        yield interval((found.low[proxy, column], found.high[proxy, column])) if known else "–"


def _plot(found: Guide, proxy: str) -> Plot:
    values = getattr(found, proxy)[:, 0]

    def draw(axes: Axes) -> None:
        for index, kind in enumerate(("encoder", "decoder", "cross")):
            colour, marker = style_of(index)
            own = [number for number, head in enumerate(heads_named(found.heads)) if head.kind == kind]
            axes.plot(
                values[own], found.effect[own, 0], marker, color=colour, markersize=5, linestyle="none", label=kind
            )
        for number in np.argsort(-found.effect[:, 0])[:4]:
            axes.annotate(
                found.heads[number], (values[number], found.effect[number, 0]), (4, 3), textcoords="offset points",
                fontsize=7,
            )  # fmt: skip
        axes.set_xlabel(f"{NAMES[proxy]}, {SENTENCE}")
        axes.set_ylabel(f"harm without the head, {SENTENCE}")
        axes.legend(loc="best")

    return plot(f"proxy_{proxy}", f"{NAMES[proxy]} of each head against its true effect on the loss", draw)


def _rows(found: Guide) -> Iterator[Row]:
    for proxy in PROXIES:
        for row, column in np.ndindex(*found.effect.shape):
            value = float(getattr(found, proxy)[row, column])
            yield Row(found.heads[row], f"proxy.{proxy}", found.columns[column], value, unit=SENTENCE)


def _findings(found: Guide) -> Iterator[str]:
    if np.isnan(found.rank[0]).all():
        return
    worst = int(np.nanargmin(found.rank[0]))
    text = f"The rank correlation of gradient importance and true effect over heads is {_rank(found, 0)} for the loss"
    yield f"{text}; for {found.columns[worst]} it is {_rank(found, worst)}." if worst else f"{text}."


def _rank(found: Guide, column: int) -> str:
    return f"{found.rank[0, column]:z.2f} {interval((found.low[0, column], found.high[0, column]))}"


def _figures(found: Guide) -> Figures:
    ranks = (-found.importance[:, 0]).argsort().argsort() + 1
    return {
        head: [
            ("gradient importance", f"{found.importance[row, 0]:.2f} {SENTENCE}, number {ranks[row]} of {len(ranks)}")
        ]
        for row, head in enumerate(found.heads)
    }
