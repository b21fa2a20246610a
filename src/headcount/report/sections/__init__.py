"""Sections of a report. Each is a function of a study that gives a section, or None for nothing to show."""

from headcount.report.sections.contrastive import contrastive
from headcount.report.sections.curves import curves
from headcount.report.sections.effects import effects
from headcount.report.sections.pairs import pairs
from headcount.report.sections.quality import quality
from headcount.report.sections.results import results, runs, settings
from headcount.report.sections.translations import translations
from headcount.report.sections.tuning import tuning

SECTIONS = (results, tuning, quality, effects, pairs, contrastive, curves, translations, runs, settings)
