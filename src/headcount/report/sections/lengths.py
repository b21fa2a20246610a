"""BLEU by length of the reference, after Bahdanau et al. 2015, Figure 2."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from headcount.report.blocks import Plots, Section
from headcount.report.charts import BESIDE, CHOSEN, Rows, chart, dots, faded, hover, layer, quantity
from headcount.report.plot import Plot
from headcount.report.study import Study
from headcount.report.table import Table, score
from headcount.statistics.bootstrap import Floats, bleu_of
from headcount.statistics.comparison import Comparison, compare

GROUPS = 4


@dataclass(frozen=True)
class LengthGroup:
    """The held-out sentences whose references have `shortest` to `longest` tokens, and all rows compared by BLEU on
    these sentences. scores: by row and run."""

    shortest: int
    longest: int
    sentences: int
    scores: Sequence[Sequence[float]]
    comparison: Comparison

    @property
    def label(self) -> str:
        return f"{self.shortest} to {self.longest}" if self.shortest < self.longest else str(self.longest)


def section(study: Study) -> Section | None:
    groups = by_length(study.endpoint.counts, study.compare) if study.endpoint.counts else []
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


def by_length(
    rows: Sequence[Sequence[Floats]], compared: Callable[[Sequence[Sequence[float]]], Comparison] = compare
) -> list[LengthGroup]:
    """Groups of about equally many sentences, the shortest first, without those in which a run has no sentence; none if
    fewer than two are left.

    rows: of each row the `sentence_counts` of its runs, which may be on corpora of their own. compared: compares rows.
    """
    lengths = np.concatenate([run[:, -1] for row in rows for run in row])
    bounds = np.unique(np.quantile(lengths, np.linspace(0, 1, GROUPS + 1)[1:], method="inverted_cdf"))
    groups, longest = [], -np.inf
    for bound in bounds:
        chosen = [[run[(run[:, -1] > longest) & (run[:, -1] <= bound)] for run in row] for row in rows]
        shortest, longest = int(lengths[lengths > longest].min()), bound
        sizes = [len(run) for row in chosen for run in row]
        if not min(sizes):
            continue  # a corpus of its own may lack sentences of a length, and no sentence has no BLEU
        scores = [[float(bleu_of(run.sum(axis=0))) for run in row] for row in chosen]
        groups.append(LengthGroup(shortest, int(bound), round(np.mean(sizes)), scores, compared(scores)))
    return groups if len(groups) > 1 else []


def _plot(study: Study, groups: Sequence[LengthGroup]) -> Plot:
    """A line for each row, a dot for each run."""
    rows, labels = Rows.of(study.sweep), [group.label for group in groups]
    runs = [run | {"group": group.label} for group in groups for run in rows.runs(study.sweep, group.scores)]
    means = [
        rows.record(index, value=mean) | {"group": group.label}
        for group in groups
        for index, mean in enumerate(group.comparison.means)
    ]
    axis = {"labelAngle": 0, "grid": False}
    x = {"field": "group", "type": "ordinal", "sort": labels, "title": "tokens of the reference", "axis": axis}
    y, colour = quantity("value"), rows.colour
    seen = hover(row=rows.name, seed="seed", value="BLEU")
    mean = {"type": "line", "point": {"size": 50}, "strokeWidth": 1.4}
    layers = [
        dots(runs, BESIDE, x=x, y=y, color=colour, opacity=faded(0.4), tooltip=seen),
        layer(
            mean, means, x=x, y=y, color=colour, opacity=faded(), tooltip=hover(row=rows.name, value="mean BLEU")
        ) | {"params": [CHOSEN]},
    ]  # fmt: skip
    return chart("bleu_by_length", "BLEU by length of the reference", layers, heading="BLEU")
