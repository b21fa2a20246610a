"""Plots as SVG, in the colour of the page's text, and as PNG."""

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from markupsafe import escape
from matplotlib.figure import Figure

from headcount.files import write_bytes, write_text

INK = "#010101"  # replaced by the colour of the page's text
STYLE: dict[Any, Any] = {
    "backend": "agg",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "svg.hashsalt": "headcount",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.15,
    "legend.frameon": False,
    "legend.fontsize": 8,
    **dict.fromkeys(
        (
            "text.color",
            "axes.labelcolor",
            "axes.edgecolor",
            "axes.titlecolor",
            "xtick.color",
            "ytick.color",
            "grid.color",
        ),
        INK,
    ),
}
# For a separate file, which has no page to take its colour from.
ALONE = (
    "<style>:root{color:#1f2328;background:none}"
    "@media (prefers-color-scheme:dark){:root{color:#d7dce2}}text{font-family:system-ui,sans-serif}</style>"
)


@dataclass(frozen=True)
class Plot:
    """A drawing. name: of its files. title: its content in words, also for readers who cannot see it."""

    name: str
    title: str
    svg: str
    png: bytes

    @classmethod
    def of(cls, name: str, title: str, draw: Callable[[Figure], None], size: tuple[float, float]) -> "Plot":
        """Draw on an empty figure. size: width and height in inches."""
        with matplotlib.rc_context({**matplotlib.rcParamsDefault, **STYLE}):
            figure = Figure(figsize=size, layout="constrained")
            draw(figure)
            svg, png = io.StringIO(), io.BytesIO()
            figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
            figure.set_layout_engine("none")  # it is laid out already
            figure.savefig(png, format="png", dpi=150, facecolor="white", metadata={"Software": None})
        text = svg.getvalue()
        text = text[text.index("<svg") :].replace(INK, "currentColor").replace("'DejaVu Sans'", "system-ui")
        return cls(name, title, text, png.getvalue())

    def inline(self, prefix: str = "") -> str:
        """The SVG for a page. prefix: makes its ids differ from those of the page's other plots."""
        prefix = f"{prefix}{self.name}-"
        text = re.sub(r'\bid="', f'id="{prefix}', self.svg)
        text = re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}", text)
        return re.sub(r'width="[^"]*pt" height="[^"]*pt"|height="[^"]*pt" width="[^"]*pt"', "", text, count=1).replace(
            "<svg ", f'<svg role="img" aria-label="{escape(self.title)}" ', 1
        )

    @property
    def file(self) -> str:
        """The SVG as a separate file."""
        return re.sub(r"(<svg[^>]*>)", rf"\1{ALONE}", self.svg, count=1)

    def write(self, directory: Path) -> None:
        """Write NAME.svg and NAME.png."""
        write_text(directory / f"{self.name}.svg", self.file)
        write_bytes(directory / f"{self.name}.png", self.png)
