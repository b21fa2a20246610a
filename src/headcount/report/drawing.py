"""Plots drawn with matplotlib: maps of attention and of heads."""

import io
import logging
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.text import Text

from headcount.report.plot import Plot

warn_once = cache(logging.getLogger(__name__).warning)

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
        svg, png = io.StringIO(), io.BytesIO()
        figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        figure.set_layout_engine("none")  # it is laid out already
        figure.savefig(png, format="png", dpi=150, facecolor="white", metadata={"Software": None})
        font, texts = get_font(findfont("DejaVu Sans")), (text.get_text() for text in figure.findobj(Text))
        if any(not font.get_char_index(ord(character)) for character in set("".join(texts)) - {"\n"}):
            warn_once("PNG files have boxes for characters that the font DejaVu Sans lacks; the SVG files show them")
    text = svg.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor").replace("'DejaVu Sans'", "system-ui")
    return Plot(name, title, text, png.getvalue())
