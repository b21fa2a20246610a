"""Blocks of a report, before they become Markdown or HTML: sections, plots, facts, code."""

from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from headcount.report.plot import Plot
from headcount.report.table import Table


@dataclass(frozen=True)
class Plots:
    """Plots side by side. legend: of all of them."""

    plots: tuple[Plot, ...]
    small: bool = False
    legend: str = ""


@dataclass(frozen=True)
class Drawn:
    """HTML of the page, and the plots that take its place in Markdown."""

    html: Markup
    plots: tuple[Plot, ...] = ()


@dataclass(frozen=True)
class Facts:
    """Names and values, a line each. code: whether the values are code."""

    items: tuple[tuple[str, str], ...]
    code: bool = False


@dataclass(frozen=True)
class Code:
    """Lines of code. summary: the line to which it is folded, if it is."""

    text: str
    language: str
    summary: str = ""


@dataclass(frozen=True)
class Section:
    """A heading and the blocks below it. A text is a paragraph, a section a part with a smaller heading."""

    title: str
    blocks: tuple["str | Plots | Drawn | Table | Facts | Code | Section", ...]

    @property
    def plots(self) -> Iterator[Plot]:
        for block in self.blocks:
            if isinstance(block, Plots | Drawn | Section):
                yield from block.plots
