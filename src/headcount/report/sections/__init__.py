"""Sections of a report. Each is a function of a study that gives a section, or None for nothing to show."""
