"""The content of a report, before it becomes Markdown or HTML."""

import importlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headcount.errors import InputError
from headcount.report.drawing import Plot
from headcount.report.flags import flagged
from headcount.report.runs import Sweep, Unfinished
from headcount.report.study import Study
from headcount.report.table import Table
from headcount.report.verdicts import capital, summary

# Modules of headcount.report.sections; each has a function section(study) -> Section | None.
SECTIONS = [
    "results",
    "quality",
    "pairs",
    "losses",
    "lengths",
    "cost",
    "curves",
    "contrastive",
    "published",
    "settings",
    "next_steps",
]

logger = logging.getLogger("headcount.report")


@dataclass(frozen=True)
class Plots:
    """Plots side by side."""

    plots: tuple[Plot, ...]
    small: bool = False


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
    blocks: tuple["str | Plots | Table | Facts | Code | Section", ...]

    @property
    def plots(self) -> Iterator[Plot]:
        for block in self.blocks:
            if isinstance(block, Plots | Section):
                yield from block.plots


@dataclass(frozen=True)
class Page:
    """The whole report, from top to bottom."""

    title: str
    verdict: str
    about: str
    progress: str
    unfinished: tuple[Unfinished, ...]
    flags: tuple[str, ...]
    sections: tuple[Section, ...]

    @property
    def plots(self) -> list[Plot]:
        return [plot for section in self.sections for plot in section.plots]


def make_page(study: Study) -> Page:
    """All sections that have something to show. One that fails becomes a flag. Raises InputError for bad settings."""
    sweep, endpoint = study.sweep, study.endpoint
    sections, failures = [], []
    for name in SECTIONS:
        try:
            make: Callable[[Study], Section | None] = importlib.import_module(f"{__package__}.sections.{name}").section
            if (section := make(study)) is not None:
                sections.append(section)
        except InputError:
            raise
        except Exception as error:  # whatever is wrong with one section, the others are right
            logger.debug("section %s", name, exc_info=True)
            failures.append(f"The section '{name}' is missing, since it failed: {type(error).__name__}: {error}")
    return Page(
        title=sweep.design.title or f"Runs in {sweep.directory.name}",
        verdict=capital(summary(endpoint.comparison, study.names, endpoint.name, study.margins.bleu)),
        about=sweep.design.about or "",
        progress=_progress(sweep),
        unfinished=sweep.unfinished,
        flags=(*failures, *sweep.notes, *endpoint.flags, *flagged(sweep)),
        sections=tuple(sections),
    )


def _progress(sweep: Sweep) -> str:
    finished = sweep.jobs - len(sweep.unfinished)
    if not sweep.unfinished:
        return f"All {sweep.jobs} runs are finished."
    return f"{finished} of {sweep.jobs} runs are finished. The figures below may change when the others are:"
