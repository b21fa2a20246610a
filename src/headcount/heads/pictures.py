"""Maps of heads by columns: as a table of links for the page, and as a drawing for Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from headcount.heads.statistics import EffectTable
from headcount.report.axes import plot
from headcount.report.blocks import Drawn
from headcount.report.drawing import INK, Plot

HARM, GAIN = (204, 74, 95), (59, 130, 196)  # visible on light and dark pages
DEEPEST = 0.75  # opacity: text stays readable above it
CELL = (0.62, 0.22)  # inches


@dataclass(frozen=True)
class MapCell:
    """A cell of a map. text: the value. title: the value in words. shade: opacity and colour of its background."""

    text: str
    title: str
    sure: bool
    colour: tuple[int, int, int]
    opacity: float

    @property
    def background(self) -> str:
        red, green, blue = self.colour
        return f"rgba({red},{green},{blue},{self.opacity:.2f})"


@dataclass(frozen=True)
class HeadMap:
    """Heads by columns. cells: [head][column]. whole: the value of the whole model in each column."""

    name: str
    label: str
    title: str
    heads: Sequence[str]
    columns: Sequence[str]
    whole: Sequence[str]
    cells: Sequence[Sequence[MapCell]]


def effect_map(name: str, label: str, title: str, table: EffectTable, unit: str, digits: int) -> HeadMap:
    """A map of effects; the loss has a scale and a unit of its own, nats."""
    scale = np.array([_scale(table.harm[:, column]) for column in range(len(table.columns))])
    shared = scale[[column != "loss" for column in table.columns]]
    for number, column in enumerate(table.columns):
        scale[number] = scale[number] if column == "loss" else shared.max()
    units = ["nats" if column == "loss" else unit for column in table.columns]
    places = [2 if column == "loss" else digits for column in table.columns]
    cells = [
        [_cell(table, row, column, scale[column], units[column], places[column]) for column in range(len(units))]
        for row in range(len(table.rows))
    ]
    whole = [f"{value:.{place}f}" for value, place in zip(table.whole, places, strict=True)]
    return HeadMap(name, label, title, table.rows, table.columns, whole, cells)


def _scale(harm: NDArray) -> float:
    return max(float(np.abs(harm).max(initial=0)), 1e-9)


def _cell(table: EffectTable, row: int, column: int, scale: float, unit: str, digits: int) -> MapCell:
    value, harm = table.estimate[row, column], table.harm[row, column]
    sure = table.verdict[row, column] == "differs"
    low, high = table.low[row, column], table.high[row, column]
    title = (
        f"{table.rows[row]} off, {table.columns[column]}: {value:+.{digits}f} {unit} [{low:.{digits}f}, "
        f"{high:.{digits}f}], p {table.p[row, column]:.3f}, {table.verdict[row, column]}"
    )
    opacity = DEEPEST * min(abs(harm) / scale, 1) ** 0.6 * (1 if sure else 0.35)
    return MapCell(signed(value, digits), title, bool(sure), HARM if harm > 0 else GAIN, opacity)


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
                colour = (*(part / 255 for part in cell.colour), cell.opacity)
                axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=colour, linewidth=0))
                axes.text(
                    column,
                    row,
                    cell.text,
                    ha="center",
                    va="center",
                    fontsize=7,
                    color=INK,
                    alpha=1 if cell.sure else 0.5,
                )
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
