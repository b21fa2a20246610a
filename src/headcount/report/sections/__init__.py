"""Sections of a report, a file each, and their list: `section(study)` gives one, or None for nothing to show."""

from headcount.report.sections import (
    contrastive,
    cost,
    curves,
    lengths,
    losses,
    next_steps,
    pairs,
    published,
    quality,
    results,
    settings,
)

SECTIONS = (results, quality, pairs, losses, lengths, cost, curves, contrastive, published, settings, next_steps)
