"""Sentences whose translations differ most consistently between the best and the worst row: over all seeds of both.

The score of a sentence is BLEU with one added to the matches and totals of its longer n-grams (Lin and Och 2004). Two
rows differ consistently in a sentence if the lowest run of one row is above the highest run of the other: the gap
between these is what sentences are sorted by.
"""

from collections.abc import Sequence

import numpy as np

from headcount.report.page import Section, markdown_table
from headcount.report.runs import Row
from headcount.report.study import Study
from headcount.statistics.bootstrap import ORDERS, Floats

NOTE = (
    "Of the rows with the highest and the lowest BLEU, the sentences in which every run of the one is above every run "
    "of the other, by BLEU of the sentence (smoothed: Lin and Och 2004); the widest gap first, and the translation of "
    "the first run. They are chosen by their scores: they show what a difference looks like, and prove none."
)
SHOWN = 5


def translations(study: Study) -> Section | None:
    counts, means, sweep = study.endpoint.counts, study.endpoint.comparison.means, study.sweep
    if not counts or sweep.corpora or len(study.rows) < 2:
        return None
    best, worst = max(range(len(means)), key=means.__getitem__), min(range(len(means)), key=means.__getitem__)
    gaps = sentence_gaps(counts[best], counts[worst])
    chosen = [int(each) for each in np.argsort(-gaps, kind="stable")[:SHOWN] if gaps[each] > 0]
    if not chosen:
        return None
    splits = study.endpoint.splits
    references = [line for split in splits for line in sweep.references[split]]
    columns = [
        ("reference", references),
        *((study.labels[row], _first(study.rows[row], splits)) for row in (best, worst)),
        ("gap", [f"{gap:.1f}" for gap in gaps]),
    ]
    sources = [line for split in splits for line in sweep.sources.get(split, ())]
    if len(sources) == len(references):
        columns.insert(0, ("source", sources))
    headers = [header for header, _ in columns]
    cells = [[lines[each] for _, lines in columns] for each in chosen]
    return Section("Translations that differ", (NOTE, markdown_table(headers, cells, words=range(len(headers) - 1))))


def _first(row: Row, splits: Sequence[str]) -> list[str]:
    """The translations of the first run of a row."""
    return [line for split in splits for line in row.runs[0].hypotheses[split]]


def sentence_bleu(counts: Floats) -> Floats:
    """Smoothed BLEU of each sentence, 0 to 100; of `sentence_counts` [sentence, 10]."""
    more = np.array([0.0] + [1.0] * (ORDERS - 1))
    matches, totals = counts[:, :ORDERS] + more, counts[:, ORDERS : 2 * ORDERS] + more
    length, reference = counts[:, -2], counts[:, -1]
    scored = matches[:, 0] > 0
    logs = np.log(np.where(scored[:, None], matches, 1) / np.maximum(totals, 1)).mean(axis=1)
    brevity = np.minimum(0, 1 - reference / np.maximum(length, 1))
    return np.where(scored, 100 * np.exp(logs + brevity), 0.0)


def sentence_gaps(better: Sequence[Floats], worse: Sequence[Floats]) -> Floats:
    """The lowest run of one row less the highest of another, by sentence. better, worse: their runs."""
    low, high = (np.stack([sentence_bleu(run) for run in row]) for row in (better, worse))
    gaps: Floats = low.min(axis=0) - high.max(axis=0)
    return gaps
