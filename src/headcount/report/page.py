"""A page: sections of Markdown and charts, written as a Markdown file and as one HTML file that needs no network."""

import base64
import functools
import gzip
import html as entities
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import altair as alt
import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from tabulate import tabulate

from headcount.files import write_text
from headcount.report.views import CONFIG

Found = TypeVar("Found")
# For a separate file, which has no page to take its colour from.
ALONE = "<style>:root{color:#1f2328;background:none}@media (prefers-color-scheme:dark){:root{color:#d7dce2}}</style>"


@dataclass(frozen=True)
class View:
    """A chart. name: of its file, NAME.svg. title: its content in words, also for readers who cannot see it."""

    name: str
    title: str
    chart: alt.TopLevelMixin

    @property
    def spec(self) -> str:
        """The chart as Vega-Lite."""
        with alt.data_transformers.enable("default", max_rows=None):
            spec = self.chart.to_dict()
        return json.dumps({**spec, "config": CONFIG}, ensure_ascii=False, separators=(",", ":"))

    def svg(self) -> str:
        """The chart as a file of its own."""
        return re.sub(r"(<svg[^>]*>)", rf"\1{ALONE}", drawn(self.spec), count=1)


@dataclass(frozen=True)
class Section:
    """A heading and the blocks below it: Markdown, views, and sections with a smaller heading. folded: the page shows
    the title, and the blocks after a click on it."""

    title: str
    blocks: "tuple[str | View | Section, ...]"
    folded: bool = False

    @property
    def views(self) -> Iterator[View]:
        for block in self.blocks:
            if isinstance(block, View):
                yield block
            elif isinstance(block, Section):
                yield from block.views


@dataclass(frozen=True)
class Page:
    """A page, from top to bottom. title, verdict, flags: plain text. about: Markdown."""

    title: str
    verdict: str
    about: str = ""
    flags: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()

    @property
    def views(self) -> list[View]:
        return [view for section in self.sections for view in section.views]


class Marked(str):
    """A cell of a table that is Markdown already."""


def markdown_table(headers: Sequence[str], cells: Sequence[Sequence[str]], words: Collection[int] = (0,)) -> str:
    """A table as Markdown. headers, cells: plain text, but for cells that are `Marked`. words: the columns of text,
    aligned to the left."""
    align = ["left" if column in words else "right" for column in range(len(headers))]
    rows = [[cell if isinstance(cell, Marked) else _inline(cell) for cell in row] for row in cells]
    return tabulate(rows, headers=[*map(_inline, headers)], tablefmt="pipe", disable_numparse=True, colalign=align)


def escaped(text: str) -> str:
    """Text that Markdown shows unchanged, on one line: no heading, list, tag, link or code begins in it."""
    return re.sub(r"^(\d+)(?=[.)])|^(?=[#>+=-])", r"\g<1>\\", _inline(text))


def _inline(text: str) -> str:
    """Text that Markdown shows unchanged within a line. An underscore within a word needs no escape."""
    special = r"[\\|`*]|(?<!\w)_|_(?!\w)|<(?=[a-zA-Z/!?])|(?<=\S)>|\](?=[(\[:])|&(?=[#\w])"
    return re.sub(special, r"\\\g<0>", " ".join(text.splitlines()))


def code(text: str, language: str = "") -> str:
    """Lines of code as Markdown, or a word of code in a line if they have no language."""
    ticks = "`" * max([3 if language else 1, *(len(found) + 1 for found in re.findall("`+", text))])
    if language:
        return f"{ticks}{language}\n{text.rstrip()}\n{ticks}"
    return f"{ticks}{text}{ticks}" if ticks == "`" else f"{ticks} {text} {ticks}"


def write(page: Page, directory: Path, name: str) -> Path:
    """Write NAME.md, NAME.html and plots/*.svg; returns the HTML file."""
    (directory / "plots").mkdir(parents=True, exist_ok=True)
    for view in page.views:
        write_text(directory / "plots" / f"{view.name}.svg", view.svg())
    write_text(directory / f"{name}.md", markdown(page))
    write_text(directory / f"{name}.html", html(page))
    return directory / f"{name}.html"


def markdown(page: Page) -> str:
    """The page as Markdown, with links to its plots."""
    return "\n\n".join(filter(None, _paragraphs(page))) + "\n"


def html(page: Page) -> str:
    """The page as a single file: its Markdown as HTML, and charts that Vega draws."""
    loader = PackageLoader(__package__, ".")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {"markdown": _reader().render, "packed": packed}
    library = bundle() if page.views else ""
    return environment.get_template("document.html.jinja").render(page=page, library=library) + "\n"


def _paragraphs(page: Page) -> Iterator[str]:
    yield f"# {escaped(page.title)}"
    yield f"**{escaped(page.verdict)}**"
    yield page.about
    if page.flags:
        yield "## To know before reading on"
        yield "\n".join(f"- {escaped(flag)}" for flag in page.flags)
    for section in page.sections:
        yield from _blocks(section, "##")


def _blocks(section: Section, heading: str) -> Iterator[str]:
    title = escaped(section.title)
    yield f"<details><summary>{entities.escape(section.title)}</summary>" if section.folded else f"{heading} {title}"
    for block in section.blocks:
        match block:
            case str():
                yield block
            case View():
                yield f"![{escaped(block.title)}](plots/{block.name}.svg)"
            case Section():
                yield from _blocks(block, f"{heading}#")
    yield "</details>" if section.folded else ""


@functools.cache
def _reader() -> MarkdownIt:
    """Markdown to HTML. HTML within it is text, and a table scrolls within its own box."""
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    reader.add_render_rule("table_open", lambda *_: '<div class="wide" tabindex="0"><table>\n')
    reader.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return reader


def packed(view: View) -> str:
    """The specification of a chart within a script element: gzip in base64."""
    return base64.b64encode(gzip.compress(view.spec.encode(), mtime=0)).decode()


def drawn(spec: str) -> str:
    """The SVG of a specification; its gradients, which are numbered within a process, are numbered from 0."""
    text, numbers = vl_convert.vegalite_to_svg(spec), dict[str, int]()
    return re.sub(r"gradient_\d+", lambda found: f"gradient_{numbers.setdefault(found[0], len(numbers))}", text)


@functools.cache
def bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as a script, which sets `window.vegaEmbed`."""
    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def guarded(name: str, make: Callable[[], Iterable[Found]], flags: list[str], debug: bool) -> list[Found]:
    """What `make` gives; where it fails nothing, and a flag: whatever is wrong with one part, the others are right.
    debug: raise the exception."""
    try:
        return list(make())
    except Exception as error:
        if debug:
            raise
        flags.append(f"'{name}' is missing, since it failed: {type(error).__name__}: {error}")
        return []
