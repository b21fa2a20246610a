"""Subjects of the page of a run, a file each, and their list: `subject(results)` gives one, or None where its part was
not measured."""

from headcount.heads.sections import bleu, cutting, development, knock_out, pairs, proxies, roles, twins

SUBJECTS = (knock_out, bleu, roles, twins, proxies, pairs, cutting, development)
