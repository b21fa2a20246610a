"""Sections of a report, a file each, and their list: `section(study)` gives one, or None for nothing to show."""

from headcount.report.sections import (
    contrastive,
    curves,
    effects,
    factors,
    lengths,
    losses,
    pairs,
    quality,
    results,
    runs,
    settings,
    translations,
    tuning,
)

SECTIONS = (
    results,
    tuning,
    quality,
    factors,
    effects,
    pairs,
    losses,
    lengths,
    translations,
    curves,
    contrastive,
    runs,
    settings,
)
