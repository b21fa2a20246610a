"""Plots drawn with matplotlib: maps of attention and of heads."""

import io
import warnings
from collections.abc import Callable
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from headcount.report.plot import Plot

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


def drawn(name: str, title: str, draw: Callable[[Figure], None], size: tuple[float, float]) -> Plot:
    """Draw on an empty figure. size: width and height in inches."""
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **STYLE}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # one for each character
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        svg = io.StringIO()
        figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = svg.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor").replace("'DejaVu Sans'", "system-ui")
    return Plot(name, title, text)
