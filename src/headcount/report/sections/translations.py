"""Sentences whose translations differ most consistently between the best and the worst row: over all seeds of both."""

from collections.abc import Sequence

import numpy as np

from headcount.report.page import Section, markdown_table
from headcount.report.study import Study
from headcount.statistics.bootstrap import Floats, bleu_of

NOTE = (
    "The sentences in which every run of the best row is above every run of the worst, by BLEU of the sentence "
    "(smoothed: Lin and Och 2004); the widest gap first, and the translation of the first run. They are chosen by "
    "their scores: they show what a difference looks like, and prove none."
)
SHOWN = 5
MORE = np.array([0, 1, 1, 1, 0, 1, 1, 1, 0, 0])  # matches and n-grams of the orders from 2


def translations(study: Study) -> Section | None:
    counts, means, sweep = study.endpoint.counts, study.endpoint.comparison.means, study.sweep
    if not counts or sweep.corpora or len(study.rows) < 2:
        return None
    best, worst = int(np.argmax(means)), int(np.argmin(means))
    gaps = sentence_gaps(counts[best], counts[worst])
    chosen = [each for each in np.argsort(-gaps, kind="stable")[:SHOWN].tolist() if gaps[each] > 0]
    rows = [(study.labels[row], study.rows[row].runs[0].hypotheses) for row in (best, worst)]
    columns = [
        (header, lines)
        for header, texts in [("source", sweep.sources), ("reference", sweep.references), *rows]
        if len(lines := [line for split in study.endpoint.splits for line in texts.get(split, ())]) == len(gaps)
    ]
    cells = [[*(lines[each] for _, lines in columns), f"{gaps[each]:.1f}"] for each in chosen]
    table = markdown_table([*(header for header, _ in columns), "gap"], cells, words=range(len(columns)))
    return Section("Translations that differ", (NOTE, table)) if chosen else None


def sentence_bleu(counts: Floats) -> Floats:
    """Smoothed BLEU of each sentence, 0 to 100; of `sentence_counts` [sentence, 10]."""
    return np.where(counts[:, 0] > 0, bleu_of(counts + MORE), 0.0)


def sentence_gaps(better: Sequence[Floats], worse: Sequence[Floats]) -> Floats:
    """The lowest run of one row less the highest of another, by sentence. better, worse: their runs."""
    low, high = (np.stack([sentence_bleu(run) for run in row]) for row in (better, worse))
    gaps: Floats = low.min(axis=0) - high.max(axis=0)
    return gaps
