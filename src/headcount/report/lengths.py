"""BLEU by the length of a sentence: what keeps too little of its source falls behind where there is more of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headcount.report.statistics.bootstrap import Floats, bleu_of
from headcount.report.statistics.comparison import Comparison, compare

GROUPS = 4


@dataclass(frozen=True)
class LengthGroup:
    """The held-out sentences whose references are from `shortest` to `longest` tokens long, and all rows compared by
    their BLEU on these sentences alone."""

    shortest: int
    longest: int
    sentences: int
    comparison: Comparison

    @property
    def label(self) -> str:
        return f"{self.shortest} to {self.longest}" if self.shortest < self.longest else str(self.longest)


def by_length(rows: Sequence[Sequence[Floats]]) -> list[LengthGroup]:
    """Groups of about as many sentences each, the shortest first; none if all sentences are of one length.

    rows: of each row the runs, each as `sentence_counts`. Source: Bahdanau et al. 2015, Figure 2, by the reference
    rather than the source.
    """
    lengths = rows[0][0][:, -1]
    bounds = np.unique(np.quantile(lengths, np.linspace(0, 1, GROUPS + 1)[1:], method="inverted_cdf"))
    groups, longest = [], -np.inf
    for bound in bounds:
        own = (lengths > longest) & (lengths <= bound)
        scores = [[float(bleu_of(run[own].sum(axis=0))) for run in row] for row in rows]
        groups.append(LengthGroup(int(lengths[own].min()), int(bound), int(own.sum()), compare(scores)))
        longest = bound
    return groups if len(groups) > 1 else []
