"""Development through training: the order in time of the margin of a phenomenon and of the effect of its head."""

from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes

from headcount.heads.development import Emergence, emergence
from headcount.heads.results import SENTENCE, Results, Row, Subject
from headcount.report.axes import plot, style_of
from headcount.report.blocks import Plots, Section
from headcount.report.plot import Plot
from headcount.report.table import Table

NOTE = (
    "Weights kept at some steps (checkpoint.keep). Margin: of the whole model, log p(right) − log p(wrong). Effect: "
    "the margin that the removal of one head costs, the head that matters most at the last step; it is chosen on half "
    "of the pairs and measured on the other half. Half-rise: the step at which a curve is first halfway from its first "
    "to its last value, with a 95 % interval over pairs, if the interval of last less first excludes 0. Steps between "
    "those kept, {steps}, are interpolated. First: of margin and effect, which share their unit, for all phenomena at "
    "once. Accuracy is bounded, rises early for that alone, and is not compared."
)
SMALL = (3.4, 2.4)  # inches


def subject(results: Results) -> Subject | None:
    """A plot for each phenomenon, and the half-rise steps."""
    arrays = results.get("training")
    if arrays is None or not len(arrays["phenomenon"]):
        return None
    found = emergence(arrays)
    lines = tuple(
        (
            each.phenomenon,
            each.head,
            *(_half(each, curve) for curve in ("margin", "effect")),
            each.first,
            _half(each, "accuracy"),
        )
        for each in found
    )
    headers = (
        "phenomenon", "head", "margin, half-rise step", "effect, half-rise step", "first of margin and effect",
        "accuracy, half-rise step",
    )  # fmt: skip
    table = Table(headers, lines, "", frozenset({0, 1, 4}))
    note = NOTE.format(steps=", ".join(map(str, arrays["step"])))
    section = Section("Through training", (note, Plots(tuple(map(_plot, found)), small=True), table))
    return Subject(section, tuple(_rows(found)), tuple(_findings(found)))


def _half(each: Emergence, curve: str) -> str:
    step, low, high = each.half[curve]
    if np.isnan(step):
        return "no rise is shown"
    return f"{step:,.0f}" if np.isnan(low) else f"{step:,.0f} [{low:,.0f}, {high:,.0f}]"


def _plot(each: Emergence) -> Plot:
    def draw(axes: Axes) -> None:
        for index, name in enumerate(("margin", "effect")):
            colour, marker = style_of(index)
            axes.plot(1 + each.steps, getattr(each, name), marker=marker, color=colour, markersize=4, label=name)
        axes.set_xscale("log")
        axes.set_xlabel("1 + step")
        axes.set_ylabel(SENTENCE)
        axes.set_title(f"{each.phenomenon} ({each.head})")
        axes.legend(loc="best")

    return plot(f"training_{each.phenomenon}", f"{each.phenomenon} through training", draw, SMALL)


def _rows(found: list[Emergence]) -> Iterator[Row]:
    for each in found:
        for curve, (step, low, high) in each.half.items():
            if np.isfinite(step):
                ends = (low, high) if np.isfinite(low) else (None, None)
                names = each.head, f"training.{curve}.half_rise", each.phenomenon
                yield Row(*names, step, ends[0], ends[1], verdict=each.first, unit="step")


def _findings(found: list[Emergence]) -> Iterator[str]:
    before, after = (sum(each.first == first for each in found) for first in ("effect", "margin"))
    yield (
        f"Through training, the effect of the head rises before the margin of its phenomenon in {before} of "
        f"{len(found)} phenomena and after it in {after}; in the others the order is undecided."
    )
