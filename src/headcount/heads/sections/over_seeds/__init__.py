"""Subjects of the page of a sweep, a file each: `subject(study)` gives one, or None where no run has its parts."""

from headcount.heads.sections.over_seeds import (
    alignment,
    cutting,
    development,
    knock_out,
    proxies,
    recurrence,
    roles,
    spread,
    twins,
)

STUDY_SUBJECTS = (recurrence, knock_out, spread, twins, roles, alignment, proxies, cutting, development)
