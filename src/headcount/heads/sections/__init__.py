"""Subjects of the pages, a file each, and their lists: `subject(results)` gives one, or None where its part was not
measured."""

from headcount.heads.sections import by_run, knock_out

SUBJECTS = (knock_out,)
STUDY_SUBJECTS = (by_run,)
