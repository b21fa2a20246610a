"""Error rate of the design: how often studies like this one, in which no row differs, claim that one does."""

import math

import numpy as np

from headcount.progress import progress_bar
from headcount.report.blocks import Code, Section
from headcount.report.endpoint import Endpoint
from headcount.report.statistics.bootstrap import Floats
from headcount.report.statistics.planning import like
from headcount.report.statistics.power import percent
from headcount.report.study import Study

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
        for each in like(comparison, study.simulate, _residuals(study.endpoint)):
            alarms.append(any(pair.differs for pair in each.differences))
            equals.append(float(np.mean([pair.equal(within) for pair in each.differences])))
            advance(1)
    found = (
        f"Of {study.simulate:,} simulated studies with the rows of this one and as many runs, in which no row differs, "
        f"{percent(alarms)} % claim that a pair differs; the verdicts allow for 5 %. Of the pairs in them, "
        f"{percent(equals)} % are found to be equal within {within:g} BLEU. In brackets are 95 % intervals. What runs "
        "deviate by is drawn from the runs of this study, with the spread of each row."
    )
    return Section(TITLE, (found, Code(study.command(), "bash")))


def _residuals(endpoint: Endpoint) -> Floats:
    """What the runs of all rows deviate by from their row (and corpus), in deviations of the row, with a variance of 1
    over all."""
    scores = [np.array(row) - np.mean(row) for row in endpoint.scores]
    if endpoint.corpora > 1:
        scores = list(np.array(scores) - np.mean(scores, axis=0))
    variances = endpoint.comparison.spread.variances if endpoint.comparison.spread else ()
    every = np.concatenate([row / math.sqrt(own) for row, own in zip(scores, variances, strict=True) if own])
    return every / every.std() if every.any() else every
