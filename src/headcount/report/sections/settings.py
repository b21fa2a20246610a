"""Experimental setup: corpus, machine, versions, and the settings of the runs."""

import yaml

from headcount.report.blocks import Code, Facts, Section
from headcount.report.flags import as_words
from headcount.report.runs import Sweep
from headcount.report.study import Study
from headcount.report.table import Table
from headcount.settings import typed

FACTS = {"precision": "train.precision", "hardware": "hardware", "versions": "versions", "search": "test.search"}


def section(study: Study) -> Section:
    sweep = study.sweep
    shared = yaml.safe_dump(dict(sweep.shared), sort_keys=False, allow_unicode=True)
    differing = [_differing(sweep)] if sweep.differing else []
    settings = Code(shared, "yaml", "Settings that all runs share")
    return Section("How it was measured", (_facts(sweep), *differing, settings))


def _facts(sweep: Sweep) -> Facts:
    """From metrics.json of all runs, each different answer once."""
    runs = sweep.runs
    return Facts(
        (
            ("corpus", runs[0].corpus + (", another one for each seed" if sweep.corpora else "")),
            ("seeds", ", ".join(str(seed) for seed in sorted({run.seed for run in runs}))),
            *(
                (name, "; ".join(dict.fromkeys(as_words(run.figure(path)) for run in runs)))
                for name, path in FACTS.items()
            ),
        )
    )


def _differing(sweep: Sweep) -> Table:
    """The settings that differ between runs, and their value in each row."""
    cells = []
    for name in sweep.differing:
        values = [dict.fromkeys(typed(run.settings.get(name)) for run in row.runs) for row in sweep.rows]
        cells.append((name, *map(" or ".join, values)))
    return Table(("setting", *(row.label for row in sweep.rows)), tuple(cells))
