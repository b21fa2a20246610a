"""Maps of heads by columns: as a table of links for the page, and as a drawing for Markdown."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle
from numpy.typing import NDArray

from headcount.heads.interface import Head
from headcount.heads.results import SENTENCE
from headcount.heads.statistics import LOSS
from headcount.heads.twin_shares import Edge, Shares
from headcount.report.axes import plot
from headcount.report.blocks import Drawn
from headcount.report.drawing import INK
from headcount.report.plot import Plot
from headcount.report.table import p_value
from headcount.statistics.max_t import EffectTable

HARM, GAIN = (204, 74, 95), (59, 130, 196)  # visible on light and dark pages
DEEPEST = 0.75  # opacity: text stays readable above it
CELL = (0.62, 0.22)  # inches


@dataclass(frozen=True)
class MapCell:
    """A cell of a map. text: the value. title: the value in words. depth: of its colour, from -1, blue, to 1, red."""

    text: str
    title: str
    sure: bool
    depth: float

    @property
    def rgba(self) -> tuple[int, int, int, float]:
        opacity = DEEPEST * min(abs(self.depth), 1) ** 0.6 * (1 if self.sure else 0.35)
        return *(HARM if self.depth > 0 else GAIN), round(opacity, 2)


@dataclass(frozen=True)
class HeadMap:
    """Heads by columns. cells: [head][column]. whole: a value for each column, of the whole model unless `foot` names
    another; none if empty. linked: cells lead to the cards of their heads. corner: the name of
    a row."""

    name: str
    label: str
    title: str
    heads: Sequence[str]
    columns: Sequence[str]
    whole: Sequence[str]
    cells: Sequence[Sequence[MapCell]]
    foot: str = "whole model"
    linked: bool = True
    corner: str = "head"


def effect_map(name: str, label: str, title: str, table: EffectTable, unit: str, digits: int) -> HeadMap:
    """A map of effects; the loss has a scale and a unit of its own, nats a sentence."""
    scale = np.array([_scale(table.harm[:, column]) for column in range(len(table.columns))])
    shared = scale[[column != LOSS for column in table.columns]]
    for number, column in enumerate(table.columns):
        scale[number] = scale[number] if column == LOSS else shared.max()
    units = [SENTENCE if column == LOSS else unit for column in table.columns]
    places = [2 if column == LOSS else digits for column in table.columns]
    cells = [
        [_cell(table, row, column, scale[column], units[column], places[column]) for column in range(len(units))]
        for row in range(len(table.rows))
    ]
    whole = [f"{value:.{place}f}" for value, place in zip(table.whole, places, strict=True)]
    return HeadMap(name, label, title, table.rows, table.columns, whole, cells)


def share_map(name: str, label: str, title: str, shares: Shares) -> HeadMap:
    """A map of shares in percent: blue towards the twin, red away from it, pale where the interval includes 0."""
    cells = [
        [_share(shares, row, column) for column in range(len(shares.phenomena))] for row in range(len(shares.rows))
    ]
    whole = [f"{distance:.1f}" for distance in shares.distance]
    return HeadMap(name, label, title, shares.rows, shares.phenomena, whole, cells, "nats a sentence to the twin")


def _share(shares: Shares, row: int, column: int) -> MapCell:
    share, low, high = (100 * float(each[row, column]) for each in (shares.share, shares.low, shares.high))
    where = f"{shares.rows[row]}, {shares.phenomena[column]}"
    if math.isnan(share):
        return MapCell("–", f"{where}: the model does not distinguish these twins", False, 0.0)
    sure = bool(shares.clear[row, column])
    title = f"{where}: {share:+z.0f} % of the way to the twin [{low:z.0f}, {high:z.0f}]"
    return MapCell(signed(share, 0), title, sure, -share / 100)


def _scale(harm: NDArray) -> float:
    return max(float(np.abs(harm).max(initial=0)), 1e-9)


def _cell(table: EffectTable, row: int, column: int, scale: float, unit: str, digits: int) -> MapCell:
    value, harm = table.estimate[row, column], table.harm[row, column]
    sure = table.verdict[row, column] == "differs"
    low, high = table.low[row, column], table.high[row, column]
    title = (
        f"{table.rows[row]} off, {table.columns[column]}: {value:+z.{digits}f} {unit} [{low:z.{digits}f}, "
        f"{high:z.{digits}f}], p {p_value(table.p[row, column])}, {table.verdict[row, column]}"
    )
    return MapCell(signed(value, digits), title, bool(sure), harm / scale)


def signed(value: float, digits: int) -> str:
    """A number with its sign; a middle dot where it rounds to zero."""
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text if float(f"{value:.{digits}f}") else "·"


def drawn(maps: Sequence[HeadMap]) -> Drawn:
    """Maps of the same heads, one of them shown at a time; Markdown gets a picture of each."""
    environment = Environment(
        loader=PackageLoader(__package__, "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    html = environment.get_template("head_map.html.jinja").render(maps=maps)
    return Drawn(Markup(html), tuple(picture(each) for each in maps))


def picture(head_map: HeadMap) -> Plot:
    """The map as a drawing."""
    rows, columns = len(head_map.heads), len(head_map.columns)

    def draw(axes: Axes) -> None:
        for row, cells in enumerate(head_map.cells):
            for column, cell in enumerate(cells):
                *colour, opacity = cell.rgba
                shade = (*(part / 255 for part in colour), opacity)
                axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=shade, linewidth=0))
                alpha = 1 if cell.sure else 0.5
                axes.text(column, row, cell.text, ha="center", va="center", fontsize=7, color=INK, alpha=alpha)
        axes.set_xlim(-0.5, columns - 0.5)
        axes.set_ylim(rows - 0.5, -0.5)
        axes.set_xticks(range(columns), head_map.columns, rotation=40, ha="left", fontsize=8)
        axes.xaxis.tick_top()
        axes.set_yticks(range(rows), head_map.heads, fontsize=8)
        axes.tick_params(length=0)
        axes.grid(visible=False)
        for spine in axes.spines.values():
            spine.set_visible(False)

    return plot(head_map.name, head_map.title, draw, (1.2 + CELL[0] * columns, 0.9 + CELL[1] * rows))


def graph(name: str, title: str, edges: Sequence[Edge]) -> Plot:
    """Direct paths as arrows, from the source on the left to the output on the right; the wider, the larger the
    share."""
    columns = sorted({_depth(node) for edge in edges for node in (edge.sender, edge.receiver)})
    nodes = sorted({node for edge in edges for node in (edge.sender, edge.receiver)})
    stacked = [[node for node in nodes if _depth(node) == depth] for depth in columns]
    high = max(map(len, stacked))
    at = {node: (x, (high - len(stack)) / 2 + y) for x, stack in enumerate(stacked) for y, node in enumerate(stack)}

    def draw(axes: Axes) -> None:
        for edge in edges:
            width = 0.6 + 4 * min(abs(edge.share), 1)
            colour = tuple(part / 255 for part in (GAIN if edge.share > 0 else HARM))
            axes.add_patch(
                FancyArrowPatch(
                    at[edge.sender], at[edge.receiver], arrowstyle="-|>", mutation_scale=9, shrinkA=22, shrinkB=22,
                    connectionstyle="arc3,rad=0.12", color=colour, alpha=0.85, linewidth=width,
                )
            )  # fmt: skip
        for node, (x, y) in at.items():
            axes.text(x, y, node, ha="center", va="center", fontsize=7, color=INK)
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(high - 0.4, -0.6)
        axes.set_axis_off()
        axes.set_title(title)

    return plot(name, f"circuit of {title}", draw, (1.2 * len(columns) + 0.3, 0.6 + 0.42 * high))


def _depth(node: str) -> tuple[int, int, int]:
    """The place of a head in the order of computation; the source is first and the output last."""
    head = Head.parse(node)
    if head is None:
        return (0, 0, 0) if node == "source" else (2, 0, 0)
    return (0, 1, head.layer) if head.kind == "encoder" else (1, head.layer, int(head.kind == "cross"))
