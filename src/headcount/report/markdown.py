"""A report as Markdown, with its plots as files beside it."""

import re
from collections.abc import Iterator

from headcount.report.drawing import Plot
from headcount.report.page import Page


def markdown(page: Page) -> str:
    """The page as Markdown; plots are those in plots/."""
    return "\n\n".join(block for block in _blocks(page) if block) + "\n"


def _blocks(page: Page) -> Iterator[str]:
    yield f"# {_escape(page.title)}"
    yield f"**{_escape(page.verdict)}**"
    yield _escape(page.about or "")
    yield _escape(page.progress)
    yield "\n".join(f"- `{job.name}`: {_escape(job.why)}" for job in page.unfinished)
    if page.flags:
        yield "## To know before reading on"
        yield "\n".join(f"- {_escape(flag)}" for flag in page.flags)
    yield "## Results"
    yield page.results_note
    yield page.results.markdown
    yield "  \n".join(f"{metric}: `{signature}`" for metric, signature in page.signatures)
    for section in page.sections:
        yield f"## {section.title}"
        yield _escape(section.note)
        yield "\n".join(map(_image, section.plots))
        if section.table:
            yield section.table.markdown
            yield _escape(section.table_note)
    if page.beside:
        yield "## Beside published figures"
        yield page.beside_note
    for beside in page.beside:
        yield f"### {_escape(beside.published.source)}"
        yield _escape(beside.note)
        yield beside.table.markdown if beside.table else ""
        yield _image(beside.plot) if beside.plot else ""
    yield "## How it was measured"
    yield "\n".join(f"- {name}: {_escape(value)}" for name, value in page.measured)
    yield page.differing.markdown if page.differing else ""
    yield f"<details><summary>Settings that all runs share</summary>\n\n```yaml\n{page.settings}```\n\n</details>"
    if page.next:
        yield "## What to type next"
    for what, command in page.next:
        yield _escape(what)
        yield f"```bash\n{command}\n```"


def _image(plot: Plot) -> str:
    return f"![{_escape(plot.title)}](plots/{plot.name}.svg)"


def _escape(text: str) -> str:
    """Text that Markdown shows as it is. An underscore within a word is one anyway."""
    return re.sub(r"(?<!\w)_|_(?!\w)|[\\`*\[\]<>|]", r"\\\g<0>", text)
