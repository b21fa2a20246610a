"""Plots as SVG, in the colour of the page's text."""

import base64
import gzip
import re
from dataclasses import dataclass
from pathlib import Path

from markupsafe import escape

from headcount.files import write_text

# Distinct to colour-blind readers, on light and on dark pages (after Tol 2021).
COLOURS = ("#3b82c4", "#e0762f", "#0f9f8a", "#cc4a5f", "#9a6cc9", "#a08a1f", "#2fa6d8", "#8a8a8a")
LONGEST = 24  # characters of a label
# For a separate file, which has no page to take its colour from.
ALONE = (
    "<style>:root{color:#1f2328;background:none}"
    "@media (prefers-color-scheme:dark){:root{color:#d7dce2}}text{font-family:system-ui,sans-serif}</style>"
)


@dataclass(frozen=True)
class Plot:
    """A drawing. name: of its files. title: its content in words, also for readers who cannot see it. spec: as
    Vega-Lite, for a page with scripts; empty if it has none."""

    name: str
    title: str
    svg: str
    spec: str = ""

    def inline(self, prefix: str = "") -> str:
        """The SVG for a page. prefix: makes its ids differ from those of the page's other plots."""
        prefix = f"{prefix}{self.name}-"
        own = "|".join(map(re.escape, dict.fromkeys(re.findall(r'\bid="([^"]+)"', self.svg))))
        text = re.sub(rf'(\bid="|url\(#|href="#)({own})(?=[")])', rf"\g<1>{prefix}\g<2>", self.svg) if own else self.svg
        shown = f'<svg role="img" aria-label="{escape(self.title)}"'
        return re.sub(
            r"<svg[^>]*>", lambda tag: re.sub(r' (?:width|height)="[^"]*"', "", tag[0]), text, count=1
        ).replace("<svg", shown, 1)

    @property
    def embedded(self) -> str:
        """The specification within a script element: gzip in base64, since all pairs of many rows are megabytes."""
        return base64.b64encode(gzip.compress(self.spec.encode(), mtime=0)).decode()

    @property
    def file(self) -> str:
        """The SVG as a separate file; links into the page lead nowhere there."""
        alone = re.sub(r'<a xlink:href="#[^"]*">|</a>', "", self.svg) if self.spec else self.svg
        return re.sub(r"(<svg[^>]*>)", rf"\1{ALONE}", alone, count=1)

    def write(self, directory: Path) -> None:
        """Write NAME.svg."""
        write_text(directory / f"{self.name}.svg", self.file)


def short(label: str) -> str:
    """A label that leaves room for the drawing."""
    return label if len(label) <= LONGEST else f"{label[: LONGEST - 1]}…"
