"""Error rate of the design: how often studies like this one, in which no row differs, claim that one does."""

import numpy as np

from headcount.progress import progress_bar
from headcount.report.blocks import Code, Section
from headcount.report.study import Study
from headcount.statistics.planning import like, percent

TITLE = "Error rate of this design"


def section(study: Study) -> Section | None:
    comparison, within = study.endpoint.comparison, study.margins.bleu
    if not study.simulate:
        return None
    if study.sweep.corpora and not study.sweep.blocks:
        return Section(TITLE, ("Not simulated: a row lacks a run on one of the corpora.",))
    if min(comparison.counts) < 2 or len(study.rows) < 2:
        return Section(TITLE, ("Not simulated: it takes two rows, and two runs of each.",))
    alarms, equals = [], []
    with progress_bar("simulating", study.simulate) as advance:
        for each in like(comparison, study.simulate):
            alarms.append(any(pair.differs for pair in each.differences))
            equals.append(float(np.mean([pair.equal(within) for pair in each.differences])))
            advance(1)
    found = (
        f"Of {study.simulate:,} simulated studies with the rows of this one and as many runs, in which no row differs, "
        f"{percent(alarms)} % claim that a pair differs; the verdicts allow for 5 %. Of the pairs in them, "
        f"{percent(equals)} % are found to be equal within {within:g} BLEU. In brackets are 95 % intervals. Runs are "
        "drawn from normal distributions with the deviations of these rows."
    )
    return Section(TITLE, (found, Code(study.command(), "bash")))
