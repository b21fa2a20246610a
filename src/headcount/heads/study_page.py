"""The page of the heads of a sweep: seeds are the unit."""

from dataclasses import replace

from headcount.heads.page import MEANING, HeadsPage, findings, made, rows, subjects
from headcount.heads.results import Study
from headcount.heads.sections import STUDY_SUBJECTS


def study_page(study: Study) -> HeadsPage:
    """The page over the runs of a sweep."""
    found, flags = subjects(study, STUDY_SUBJECTS)
    about = (
        f"{len(study.runs)} runs of {study.directory.name}. Heads of different seeds have no common names. {MEANING}"
    )
    page = made(f"Heads over the runs of {study.directory.name}", about, found, [*study.notes, *flags])
    done = f"All {len(study.runs)} runs are finished."
    if study.unfinished:
        done = f"{len(study.runs)} of {len(study.runs) + len(study.unfinished)} runs are finished:"
    return HeadsPage(replace(page, progress=done, unfinished=study.unfinished), rows(found), findings(found))
