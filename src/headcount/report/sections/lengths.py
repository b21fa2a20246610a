"""BLEU by length of the reference, after Bahdanau et al. 2015, Figure 2."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from headcount.report.axes import Scale, legend, plot, style_of
from headcount.report.blocks import Plots, Section
from headcount.report.drawing import Plot
from headcount.report.statistics.bootstrap import Floats, bleu_of
from headcount.report.statistics.comparison import Comparison, compare
from headcount.report.study import Study
from headcount.report.table import Table, score

GROUPS = 4


@dataclass(frozen=True)
class LengthGroup:
    """The held-out sentences whose references have `shortest` to `longest` tokens, and all rows compared by BLEU on
    these sentences."""

    shortest: int
    longest: int
    sentences: int
    comparison: Comparison

    @property
    def label(self) -> str:
        return f"{self.shortest} to {self.longest}" if self.shortest < self.longest else str(self.longest)


def section(study: Study) -> Section | None:
    groups = by_length(study.endpoint.counts) if study.endpoint.counts else []
    if not groups:
        return None
    seeds = ": means over seeds ± half a 95 % interval over seeds" if study.endpoint.comparison.spread else ""
    note = f"BLEU on the sentences whose references have that number of BLEU's tokens{seeds}."
    rows = range(len(study.rows))
    table = Table(
        ("tokens", "sentences", *(study.names.short(row) for row in rows)),
        tuple((group.label, str(group.sentences), *(score(group.comparison, row) for row in rows)) for group in groups),
    )
    return Section("By length", (note, Plots((_plot(study, groups),)), table))


def by_length(rows: Sequence[Sequence[Floats]]) -> list[LengthGroup]:
    """Groups of about equally many sentences, the shortest first; none if all sentences have the same length.

    rows: of each row the `sentence_counts` of its runs.
    """
    lengths = rows[0][0][:, -1]
    bounds = np.unique(np.quantile(lengths, np.linspace(0, 1, GROUPS + 1)[1:], method="inverted_cdf"))
    groups, longest = [], -np.inf
    for bound in bounds:
        chosen = (lengths > longest) & (lengths <= bound)
        scores = [[float(bleu_of(run[chosen].sum(axis=0))) for run in row] for row in rows]
        groups.append(LengthGroup(int(lengths[chosen].min()), int(bound), int(chosen.sum()), compare(scores)))
        longest = bound
    return groups if len(groups) > 1 else []


def _plot(study: Study, groups: Sequence[LengthGroup]) -> Plot:
    """A line for each row."""

    def draw(axes: Axes) -> None:
        at = range(len(groups))
        for index, label in enumerate(Scale.of(study.sweep).labels):
            colour, marker = style_of(index)
            means = [group.comparison.means[index] for group in groups]
            axes.plot(at, means, color=colour, marker=marker, markersize=5, linewidth=1.2, label=label)
        axes.set_xticks(at, [group.label for group in groups])
        axes.set_xlabel("tokens of the reference")
        axes.set_title("BLEU")
        legend(axes, study.sweep)

    return plot("bleu_by_length", "BLEU by length of the reference", draw)
