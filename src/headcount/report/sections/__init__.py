"""Sections of a report, a file each: its statistic, plot, table and words."""
