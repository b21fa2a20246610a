"""Sections of a report, a file each, and their list: `section(study)` gives one, or None for nothing to show."""

from headcount.report.sections import (
    cite,
    contrastive,
    cost,
    curves,
    error_rate,
    factors,
    lengths,
    losses,
    next_steps,
    pairs,
    published,
    quality,
    results,
    runs,
    settings,
    translations,
)

SECTIONS = (
    results,
    quality,
    factors,
    pairs,
    losses,
    error_rate,
    lengths,
    translations,
    cost,
    curves,
    contrastive,
    published,
    runs,
    settings,
    next_steps,
    cite,
)
