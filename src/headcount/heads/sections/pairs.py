"""Interactions of pairs of heads, redundant pairs, and Shapley values."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from headcount.heads.interactions import Redundancy, interaction_table, matrix, redundancies
from headcount.heads.results import SENTENCE, Results, Row, Subject
from headcount.heads.sections.knock_out import cells
from headcount.heads.shapley import TOLERANCE, values
from headcount.heads.statistics import LOSS
from headcount.report.axes import plot
from headcount.report.blocks import Plots, Section
from headcount.report.plot import Plot
from headcount.report.table import Table, interval
from headcount.statistics.max_t import EffectTable

NOTE = (
    "Interaction: the rise of the loss without both heads, less the rises without each alone, in nats a sentence. Red: "
    "together worse than the sum; that alone is no sign that one does the work of the other. Blue: better."
)
REDUNDANT = (
    "Redundant pairs: each head alone is free to cut (the upper end of the interval of its harm is below the bound), "
    "both together are not, and the interaction is harm. The bound of the loss is {loss} nats a token, that of "
    "a phenomenon {margin} nats a sentence. With few sentences intervals are wide, so pairs may be missed."
)
SHARE = (
    "Shapley value: the mean harm of removing a head over random orders of removal, in nats a sentence of validation "
    "text. Intervals (95 %) are over orders; the sentences are fixed. Values add up to what all heads together are "
    f"worth, up to {TOLERANCE:.0%} of it: an order ends where the heads that are left gain no more than that."
)
MOST = 15


def subject(results: Results) -> Subject | None:
    """The matrix of interactions in loss, redundant pairs, and Shapley values."""
    arrays, shapley = results.get("pairs"), results.get("shapley")
    arrays = arrays if arrays is not None and len(arrays["pair"]) else None  # a single head has no pairs
    if arrays is None and shapley is None:
        return None
    blocks: list = []
    rows: list[Row] = []
    findings: list[str] = []
    if arrays is not None:
        table, redundant = interaction_table(arrays, results.bounds), redundancies(arrays, results.bounds)
        blocks += [
            NOTE,
            Plots((_matrix(arrays, table),)),
            REDUNDANT.format(**vars(results.bounds)),
            _redundant(redundant),
        ]
        rows += cells(table, "pairs", "interaction", "interaction")
        findings += _findings(redundant)
    if shapley is not None:
        found = sorted(values(shapley), key=lambda each: -each.value)
        lines = tuple((each.head, f"{each.value:z.2f}", interval((each.low, each.high))) for each in found)
        blocks.append(
            Section("Shapley values", (Table(("head", f"value, {SENTENCE}", "95 % interval"), lines, SHARE),))
        )
        rows += [Row(each.head, "shapley", LOSS, each.value, each.low, each.high, unit=SENTENCE) for each in found]
    return Subject(Section("Heads together", tuple(blocks)), tuple(rows), tuple(findings))


def _matrix(arrays: Mapping[str, NDArray], table: EffectTable) -> Plot:
    harm = matrix(dict(arrays), table.harm[:, table.columns.index(LOSS)])
    names = arrays["head"].tolist()
    limit = float(np.nanmax(abs(harm), initial=1e-9))
    rgba = np.zeros((*harm.shape, 4))
    known = np.nan_to_num(harm)
    rgba[known > 0, :3], rgba[known < 0, :3] = (0.80, 0.29, 0.37), (0.23, 0.51, 0.77)
    rgba[..., 3] = (abs(known) / limit) ** 0.6

    def draw(axes: Axes) -> None:
        axes.imshow(rgba, interpolation="none")
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
        axes.set_yticks(range(len(names)), names, fontsize=7)
        axes.tick_params(length=0)
        axes.grid(visible=False)
        axes.set_title(f"interaction in loss; deepest: {limit:.2f} {SENTENCE}")

    size = 1.4 + 0.17 * len(names)
    return plot("interactions", "interactions of pairs of heads in loss", draw, (size, size))


def _redundant(found: Sequence[Redundancy]) -> Table | str:
    lines = tuple(
        (
            f"{each.first} + {each.second}",
            each.column,
            f"{each.alone[0]:.2f}, {each.alone[1]:.2f}",
            f"{each.together:.2f}",
            interval((each.low, each.high)),
        )
        for each in found[:MOST]
    )
    headers = (
        "heads", "column", f"harm of each alone, {SENTENCE}", f"together, {SENTENCE}",
        f"95 % interval beyond the sum, {SENTENCE}",
    )  # fmt: skip
    more = f"The first {MOST} of {len(found)}." if len(found) > MOST else ""
    return Table(headers, lines, more, frozenset({0, 1})) if lines else "No such pair is shown."


def _findings(found: Sequence[Redundancy]) -> Iterator[str]:
    for each in found[:1]:
        yield (
            f"{each.first} and {each.second} may replace each other in {each.column}: each alone is free to cut, and "
            f"together they cost {each.together:.2f} nats a sentence."
        )
