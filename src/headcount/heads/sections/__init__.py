"""Subjects of the pages, a file each, and their lists: `subject(results)` gives one, or None where its part was not
measured."""

from headcount.heads.sections import (
    by_run,
    cutting,
    development,
    kinds,
    knock_out,
    pairs,
    proxies,
    published,
    recurrence,
    roles,
    twins,
)

SUBJECTS = (knock_out, roles, twins, proxies, pairs, cutting, kinds, development, published)
STUDY_SUBJECTS = (recurrence, by_run)
