"""The page of a report: its verdict, flags and sections, before it becomes Markdown or HTML."""

import logging
from dataclasses import dataclass, replace

from headcount.errors import InputError
from headcount.report.blocks import Code, Plots, Section
from headcount.report.flags import flagged, nothing_learnt, unlike
from headcount.report.plot import Plot
from headcount.report.runs import Sweep, Unfinished
from headcount.report.sections import SECTIONS
from headcount.report.study import Study
from headcount.report.verdicts import capital, summary

logger = logging.getLogger("headcount.report")


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

    def without_plots(self, command: str) -> "Page":
        """The page without plots, and without sections of plots alone. command: draws them; the page shows it."""
        texts = (
            (each, tuple(block for block in each.blocks if not isinstance(block, Plots))) for each in self.sections
        )
        sections = [replace(section, blocks=blocks) for section, blocks in texts if blocks]
        return replace(self, sections=(*sections, Section("Plots", ("This draws them:", Code(command, "bash")))))


def make_page(study: Study) -> Page:
    """All sections that have something to show. One that fails becomes a flag. Raises InputError for bad settings."""
    sweep, endpoint = study.sweep, study.endpoint
    compared = summary(endpoint.comparison, study.names, endpoint.name, study.margins.bleu)
    sections, failures = [], []
    for module in SECTIONS:
        name = module.__name__.rpartition(".")[2]
        try:
            section: Section | None = module.section(study)
            if section is not None:
                sections.append(section)
        except InputError:
            raise
        except Exception as error:  # whatever is wrong with one section, the others are right
            logger.debug("section %s", name, exc_info=True)
            failures.append(f"The section '{name}' is missing, since it failed: {type(error).__name__}: {error}")
    return Page(
        title=sweep.design.title or f"Runs in {sweep.directory.name}",
        verdict=nothing_learnt(sweep) or capital(compared),
        about=sweep.design.about or "",
        progress=_progress(sweep),
        unfinished=sweep.unfinished,
        flags=(*failures, *sweep.notes, *endpoint.flags, *unlike(endpoint.comparison), *flagged(sweep)),
        sections=tuple(sections),
    )


def _progress(sweep: Sweep) -> str:
    finished = sweep.jobs - len(sweep.unfinished)
    if not sweep.unfinished:
        return f"All {sweep.jobs} runs are finished." if sweep.jobs > 1 else "The one run is finished."
    return f"{finished} of {sweep.jobs} runs are finished. The figures below may change when the others are:"
