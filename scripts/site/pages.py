"""The site's pages that lie outside docs/, links that lead there, and formulas as MathML, which browsers draw."""

import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "data/README.md": "data.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of other folders."""
    for path, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links between the site's pages; a link to another file of the repository becomes its text."""
    own = page.file.src_uri
    place = next((path for path, name in PAGES.items() if name == own), f"docs/{own}")

    def linked(match: re.Match[str]) -> str:
        text, target, anchor = match.groups()
        path = normpath(str(PurePosixPath(place).parent / target)) if target else place
        inside = PAGES.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        return text if inside is None else f"[{text}]({relpath(inside, PurePosixPath(own).parent)}{anchor or ''})"

    markdown = formulas(markdown)
    return re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)#\s]*)(#[^)\s]*)?\)", linked, images(markdown, place, own))


def images(markdown: str, place: str, own: str) -> str:
    """Pictures of docs/ seen from a page of another folder."""
    return markdown if place.startswith("docs/") else re.sub(r"(!\[[^\]]*\]\(|src=\")docs/", r"\1", markdown)


def formulas(markdown: str) -> str:
    """$...$ and $$...$$ outside code as MathML."""
    parts = re.split(r"(```.*?```|`[^`\n]*`)", markdown, flags=re.DOTALL)
    for place in range(0, len(parts), 2):
        parts[place] = re.sub(r"\$\$(.+?)\$\$", _formula("block"), parts[place], flags=re.DOTALL)
        parts[place] = re.sub(r"\$([^$]+?)\$", _formula("inline"), parts[place])
    return "".join(parts)


def _formula(display: str) -> Callable[[re.Match[str]], str]:
    return lambda match: convert(" ".join(match[1].split()), display=display)
