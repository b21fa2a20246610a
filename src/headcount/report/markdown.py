"""A report as Markdown, with its plots as files beside it."""

import re
from collections.abc import Iterator

from headcount.report.blocks import Code, Drawn, Facts, Plots, Section
from headcount.report.made import Page
from headcount.report.plot import Plot
from headcount.report.table import Table


def markdown(page: Page) -> str:
    """The page as Markdown; plots are files in plots/."""
    return "\n\n".join(paragraph for paragraph in _paragraphs(page) if paragraph) + "\n"


def _paragraphs(page: Page) -> Iterator[str]:
    yield f"# {_escape(page.title)}"
    yield f"**{_escape(page.verdict)}**"
    yield _escape(page.about)
    yield _escape(page.progress)
    yield "\n".join(f"- {_code(job.name)}: {_escape(job.why)}" for job in page.unfinished)
    if page.flags:
        yield "## To know before reading on"
        yield "\n".join(f"- {_escape(flag)}" for flag in page.flags)
    for section in page.sections:
        yield from _section(section, "##")


def _section(section: Section, heading: str) -> Iterator[str]:
    yield f"{heading} {_escape(section.title)}"
    for block in section.blocks:
        match block:
            case str():
                yield _escape(block)
            case Plots() | Drawn():
                yield _escape(block.legend) if isinstance(block, Plots) else ""
                yield "\n".join(map(_image, block.plots))
            case Table():
                yield block.markdown
                yield _escape(block.note)
            case Facts():
                values = [_code(value) if block.code else _escape(value) for _, value in block.items]
                yield "\n".join(f"- {name}: {value}" for (name, _), value in zip(block.items, values, strict=True))
            case Code():
                fence = _fence(block.text, 3)
                code = f"{fence}{block.language}\n{block.text.rstrip()}\n{fence}"
                folded = f"<details><summary>{block.summary}</summary>\n\n{code}\n\n</details>"
                yield folded if block.summary else code
            case Section():
                yield from _section(block, f"{heading}#")


def _image(plot: Plot) -> str:
    return f"![{_escape(plot.title)}](plots/{plot.name}.svg)"


def _code(text: str) -> str:
    fence = _fence(text, 1)
    return f"{fence}{text}{fence}" if fence == "`" else f"{fence} {text} {fence}"


def _fence(text: str, least: int) -> str:
    """More backticks than the text has in a row."""
    return "`" * max([least, *(len(ticks) + 1 for ticks in re.findall("`+", text))])


def _escape(text: str) -> str:
    """Text that Markdown shows unchanged. An underscore within a word needs no escape."""
    return re.sub(r"(?<!\w)_|_(?!\w)|[\\`*\[\]<>|]", r"\\\g<0>", text)
