"""Reports on finished runs: tables, plots, verdicts, and their statistics."""

from headcount.errors import need

need("report")
