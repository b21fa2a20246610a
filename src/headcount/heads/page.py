"""The pages of the heads of a run and of a sweep: HTML that needs nothing else, Markdown, CSV and drawings."""

import csv
import io
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from headcount.errors import InputError, reason
from headcount.files import write_text
from headcount.heads.cards import Card, attention, cards
from headcount.heads.results import Results, Row, Study, Subject
from headcount.heads.sections import SUBJECTS
from headcount.heads.sections.over_seeds import STUDY_SUBJECTS
from headcount.report.made import Page
from headcount.report.markdown import markdown

logger = logging.getLogger(__name__)

MEANING = (
    "encoder: self-attention of the encoder; decoder: that of the decoder; cross: from the decoder to the source. "
    "cross2.1 is head 1 of layer 2."
)


@dataclass(frozen=True)
class HeadsPage:
    """A page with the rows of its heads.csv, its findings, the cards of heads and the sentences of attention."""

    page: Page
    rows: tuple[Row, ...]
    findings: tuple[str, ...]
    cards: Sequence[Card] = ()
    attention: Sequence[dict[str, Any]] = ()


def run_page(results: Results, debug: bool = False) -> HeadsPage:
    """The page of one run."""
    found, flags = subjects(results, SUBJECTS, debug)
    source, target = results.languages
    about = f"{len(results.heads)} heads of {results.name}, {source} to {target}. {MEANING}"
    page = made(f"Heads of {results.name}", about, found, flags)
    return HeadsPage(page, rows(found), findings(found), cards(results), attention(results))


def study_page(study: Study, debug: bool = False) -> HeadsPage:
    """The page over the runs of a sweep; seeds are the unit."""
    found, flags = subjects(study, STUDY_SUBJECTS, debug)
    about = (
        f"{len(study.runs)} runs of {study.directory.name}. Heads of different seeds have no common names. {MEANING}"
    )
    page = made(f"Heads over the runs of {study.directory.name}", about, found, [*study.notes, *flags])
    done = f"All {len(study.runs)} runs are finished."
    if study.unfinished:
        done = f"{len(study.runs)} of {len(study.runs) + len(study.unfinished)} runs are finished:"
    return HeadsPage(replace(page, progress=done, unfinished=study.unfinished), rows(found), findings(found))


def subjects(results: Any, modules: Iterable[ModuleType], debug: bool = False) -> tuple[list[Subject], list[str]]:
    """All subjects whose part was measured, and a flag for each that failed; debug: raise its exception instead."""
    found, flags = [], []
    for module in modules:
        name = module.__name__.rpartition(".")[2]
        make: Callable[[Any], Subject | None] = module.subject
        try:
            subject = make(results)
        except Exception as error:  # whatever is wrong with one subject, the others are right
            if debug:
                raise
            flags.append(f"The section '{name}' is missing, since it failed: {type(error).__name__}: {error}")
        else:
            found += [subject] if subject else []
    return found, flags


def made(title: str, about: str, found: Sequence[Subject], flags: Sequence[str]) -> Page:
    """A page of these subjects."""
    verdict = " ".join(findings(found)[:3]) or "No part of these results is shown to have an effect beyond chance."
    return Page(title, verdict, about, "", (), tuple(flags), tuple(each.section for each in found))


def rows(found: Iterable[Subject]) -> tuple[Row, ...]:
    """Rows of heads.csv."""
    return tuple(row for subject in found for row in subject.rows)


def findings(found: Iterable[Subject]) -> tuple[str, ...]:
    """Sentences, the most striking one of each subject first."""
    return tuple(finding for subject in found for finding in subject.findings)


def html(page: HeadsPage) -> str:
    """The page as a single file."""
    loader = ChoiceLoader([PackageLoader("headcount.heads", "."), PackageLoader("headcount.report", ".")])
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template = environment.get_template("heads.html.jinja")
    return template.render(page=page.page, cards=page.cards, attention=page.attention) + "\n"


def heads_csv(lines: Iterable[Row]) -> str:
    """A line for each row."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(Row)])
    writer.writerows(map(_cell, astuple(row)) for row in lines)
    return text.getvalue()


def _cell(value: Any) -> str:
    if value is None or value != value:  # NaN
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def write(page: HeadsPage, directory: Path) -> Path:
    """Write heads.html, heads.md, heads.csv and plots/; returns the HTML file. Raises InputError."""
    try:
        (directory / "plots").mkdir(parents=True, exist_ok=True)
        for plot in page.page.plots:
            write_text(directory / "plots" / f"{plot.name}.svg", plot.file)
        write_text(directory / "heads.csv", heads_csv(page.rows))
        write_text(directory / "heads.md", markdown(page.page))
        write_text(directory / "heads.html", html(page))
    except OSError as error:
        raise InputError(f"{directory}: can't be written to ({reason(error)})") from error
    return directory / "heads.html"
