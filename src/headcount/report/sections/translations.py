"""Sentences whose translations differ most consistently between two rows: over all seeds of both.

The score of a sentence is BLEU with one added to the matches and totals of its longer n-grams (Lin and Och 2004). Two
rows differ consistently in a sentence if the lowest run of one row is above the highest run of the other: the gap
between these is what sentences are sorted by.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from headcount.report.blocks import Section, Sentences
from headcount.report.study import Study
from headcount.report.table import Table
from headcount.statistics.bootstrap import ORDERS, Floats

NOTE = (
    "Of two rows, the sentences in which every run of one is above every run of the other, by BLEU of the sentence "
    "(smoothed: Lin and Och 2004); the widest gap first. They are chosen by their scores: they show what a difference "
    "looks like, and prove none."
)
LENGTHS = ("short", "medium", "long")  # a third of the sentences each
MOST = (10, 6, 3, 1)  # sentences of two rows, and as many of each length and each phenomenon
BYTES = 600_000  # of all sentences on the page
SHOWN = 5  # without scripts


@dataclass(frozen=True)
class Texts:
    """Held-out sentences of all splits. translations: by row, run and sentence. sources: empty if unknown. phenomena:
    "" where a sentence tests none."""

    sources: Sequence[str]
    references: Sequence[str]
    translations: Sequence[Sequence[Sequence[str]]]
    phenomena: NDArray[np.str_]
    lengths: NDArray[np.str_]

    @classmethod
    def of(cls, study: Study) -> "Texts":
        splits, sweep = study.endpoint.splits, study.sweep
        sources = [line for split in splits for line in sweep.sources.get(split, ())]
        references = [line for split in splits for line in sweep.references[split]]
        rows = [
            [[line for split in splits for line in run.hypotheses[split]] for run in row.runs] for row in sweep.rows
        ]
        phenomena = [
            name for split in splits for name in sweep.phenomena.get(split, [""] * len(sweep.references[split]))
        ]
        tokens = study.endpoint.counts[0][0][:, -1]
        third = np.searchsorted(np.quantile(tokens, (1 / 3, 2 / 3)), tokens)
        known = sources if len(sources) == len(references) else []
        return cls(known, references, rows, np.array(phenomena), np.array(LENGTHS)[third])


def section(study: Study) -> Section | None:
    if not study.endpoint.counts or study.sweep.corpora or len(study.rows) < 2:
        return None
    texts, gaps = Texts.of(study), sentence_gaps(study.endpoint.counts)
    means = study.endpoint.comparison.means
    best, worst = max(range(len(means)), key=means.__getitem__), min(range(len(means)), key=means.__getitem__)
    if not any(len(found) for found in _chosen(texts, gaps, 1).values()):
        return None
    for most in MOST:
        data = _data(study, texts, gaps, most, (best, worst))
        if len(data.encode()) < BYTES:
            break
    return Section("Translations that differ", (NOTE, Sentences(data, _shown(study, texts, gaps, best, worst))))


def sentence_bleu(counts: Floats) -> Floats:
    """Smoothed BLEU of each sentence, 0 to 100; of `sentence_counts` [sentence, 10]."""
    more = np.array([0.0] + [1.0] * (ORDERS - 1))
    matches, totals = counts[:, :ORDERS] + more, counts[:, ORDERS : 2 * ORDERS] + more
    length, reference = counts[:, -2], counts[:, -1]
    scored = matches[:, 0] > 0
    logs = np.log(np.where(scored[:, None], matches, 1) / np.maximum(totals, 1)).mean(axis=1)
    brevity = np.minimum(0, 1 - reference / np.maximum(length, 1))
    return np.where(scored, 100 * np.exp(logs + brevity), 0.0)


def sentence_gaps(rows: Sequence[Sequence[Floats]]) -> Floats:
    """The lowest run of one row minus the highest run of another, by sentence: [row, row, sentence]."""
    scores = [np.stack([sentence_bleu(run) for run in row]) for row in rows]
    low, high = np.stack([row.min(axis=0) for row in scores]), np.stack([row.max(axis=0) for row in scores])
    gaps: Floats = low[:, None] - high[None]
    return gaps


def _chosen(texts: Texts, gaps: Floats, most: int) -> dict[tuple[int, int], list[int]]:
    """Of the row that is better and the other one: the sentences with the widest gaps, the widest first. most: of all,
    and of each length and phenomenon."""
    groups = [np.full(len(texts.references), True)]
    groups += [texts.lengths == name for name in LENGTHS]
    groups += [texts.phenomena == name for name in sorted(set(texts.phenomena.tolist()) - {""})]
    found = {}
    for better, worse in permutations(range(len(gaps)), 2):
        order = np.argsort(-gaps[better, worse], kind="stable")
        order = order[gaps[better, worse, order] > 0]
        taken = {int(each) for group in groups for each in order[group[order]][:most]}
        found[better, worse] = [int(each) for each in order if int(each) in taken]
    return found


def _data(study: Study, texts: Texts, gaps: Floats, most: int, first: tuple[int, int]) -> str:
    """JSON for the page: the names of rows; sentences; by "better worse" the sentences and their gaps."""
    chosen = _chosen(texts, gaps, most)
    needed: dict[int, set[int]] = {}
    for pair, found in chosen.items():
        for each in found:
            needed.setdefault(each, set()).update(pair)
    sentences = {each: _sentence(texts, each, sorted(rows)) for each, rows in sorted(needed.items())}
    place = {each: number for number, each in enumerate(sentences)}
    pairs = {
        f"{better} {worse}": [[place[each], round(float(gaps[better, worse, each]), 1)] for each in found]
        for (better, worse), found in chosen.items()
    }
    names = [study.names.title(row) for row in range(len(study.rows))]
    phenomena = sorted(set(texts.phenomena.tolist()) - {""})
    page = {"rows": names, "first": first, "phenomena": phenomena, "lengths": LENGTHS, "pairs": pairs}
    return json.dumps({**page, "sentences": list(sentences.values())}, ensure_ascii=False, separators=(",", ":"))


def _sentence(texts: Texts, number: int, rows: Sequence[int]) -> dict[str, object]:
    """A sentence, and what the runs of each row write, each different translation with the number of runs."""
    return {
        "source": texts.sources[number] if texts.sources else "",
        "reference": texts.references[number],
        "phenomenon": str(texts.phenomena[number]),
        "length": str(texts.lengths[number]),
        "written": {str(row): list(_counted(texts, number, row)) for row in rows},
    }


def _counted(texts: Texts, number: int, row: int) -> Iterator[tuple[str, int]]:
    yield from Counter(run[number] for run in texts.translations[row]).most_common()


def _shown(study: Study, texts: Texts, gaps: Floats, best: int, worst: int) -> Table:
    """The widest gaps between two rows as a table; of each row the translation of its first run."""
    order = np.argsort(-gaps[best, worst], kind="stable")[:SHOWN]
    headers = ["reference", study.names.short(best), study.names.short(worst), "gap"]
    lines = []
    for each in map(int, order):
        if gaps[best, worst, each] > 0:
            written = [texts.translations[row][0][each] for row in (best, worst)]
            lines.append([texts.references[each], *written, f"{gaps[best, worst, each]:.1f}"])
            if texts.sources:
                lines[-1].insert(0, texts.sources[each])
    if texts.sources:
        headers.insert(0, "source")
    return Table(tuple(headers), tuple(map(tuple, lines)), words=frozenset(range(len(headers) - 1)))
