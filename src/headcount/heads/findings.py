"""Sentences that lead a page: contrasts with their intervals, from the table of heads.csv."""

import numpy as np
import pandas as pd

from headcount.heads.interface import heads_named
from headcount.heads.results import Results, Study
from headcount.heads.statistics import LOSS, free_to_cut
from headcount.heads.table import ALL, WHOLE
from headcount.statistics.max_t import ERROR

Queries = tuple[tuple[str, str, float], ...]
"""Of findings: a query of the table, the words before its rows, and the scale of their figures."""
MOST = 3  # rows of a finding
MEASURES = {
    "sensitivity": "sensitivity, which no shift towards one answer changes",
    "accuracy": "accuracy, which a shift towards one answer changes too",
}
IN_RUN: Queries = (
    ('endpoint == "twins.share" and level == "head" and sure', "Heads that carry a cue, % of the way to the twin", 100),
    ('endpoint == "link.gain" and verdict == "role"', "Heads with a role, points above all baselines", 100),
    ('endpoint == "alignment.excess" and verdict == "best"', "Best aligned, points of error above a fixed rule", 100),
    ('endpoint == "pairs.redundant"', "Pairs that may replace each other, nats beyond the sum of both alone", 1),
    ('endpoint == "proxy.loss_importance.rank"', "Rank correlation of importance for the loss with the harm", 1),
)
OVER_SEEDS: Queries = (
    ('endpoint == "spread.contrast"', "Effective number of heads, contrast in % of all heads", 100),
    ('endpoint == "matched.similarity" and p <= {error}', "Heads matched over seeds are alike beyond chance", 1),
    (
        'endpoint == "twins.largest" and sure and estimate > 0',
        "One head carries the cue, % of the way to the twin",
        100,
    ),
    (
        'endpoint == "alignment.error" and column == "excess"',
        "Alignment error of the last layer's first head, less that of the best head, points",
        100,
    ),
    ('endpoint == "training.later" and sure', "Effect of a head less margin, half-rise in log(1 + step)", 1),
    ('endpoint == "recurrence" and level == "" and low > 0.25', "Share of runs with a head for a phenomenon", 1),
    ('endpoint == "role" and level == "" and low > 0.25', "Share of runs with a head with a role", 1),
)


def said(row: pd.Series, digits: int = 2, scale: float = 1) -> str:
    """An estimate with its interval, where it has one."""
    value, low, high = (f"{scale * row[name]:z.{digits}f}" for name in ("estimate", "low", "high"))
    return (value if pd.isna(row["low"]) else f"{value} [{low}, {high}]").replace("-", "−")


def told(table: pd.DataFrame, queries: Queries, before: str = "", **given: float) -> list[str]:
    """A sentence for each query that finds something, with its largest figures."""
    sentences = []
    for query, words, scale in queries:
        found = table.query(query.format(**given), engine="python")
        found = found.loc[found["estimate"].abs().sort_values(ascending=False, kind="stable").index].head(MOST)
        each = [
            f"{before}{row['head']}, {row['column']}: {said(row, 2 - (scale > 1), scale)}"
            for _, row in found.iterrows()
        ]
        sentences += [f"{words}: {'; '.join(each)}."] if each else []
    return sentences


def of_run(table: pd.DataFrame, run: Results) -> tuple[str, ...]:
    """The findings of a run, the most striking one first."""
    at = {str(name): own.set_index(["head", "column"]) for name, own in table.groupby("endpoint", sort=False)}
    lead = [lost(at)] if "zero.loss" in at else []
    return (*lead, *told(table, IN_RUN), *(free(run) for _ in lead), *removable(table, run))


def lost(at: dict[str, pd.DataFrame]) -> str:
    """The phenomenon that surely loses most sensitivity without a head, or accuracy where its pairs have no twin, and
    surely loses margin; where none does, the change of the loss. at: the rows of each endpoint by head and column."""
    margin, *measures = (at.get(f"zero.{name}", at["zero.loss"].head(0)) for name in ("margin", *MEASURES))
    told = pd.concat(measures)
    told = told[~told.index.duplicated()].loc[margin.index]
    harmful = told[margin["sure"] & (margin["harm"] > 0) & (told["harm"] > 0) & (told["high"] < 0)]
    if not len(harmful):
        losses = at["zero.loss"]
        (head, _), count = losses["estimate"].idxmax(), int(losses["sure"].sum())
        most = said(losses.loc[(head, LOSS)])
        return f"{count} of {len(losses)} heads change the loss beyond chance, most {head}: {most} nats a sentence."
    cell = head, name = harmful["harm"].idxmax()
    right = at["whole.accuracy"]["estimate"].loc[(WHOLE, name)]
    now = right + at["zero.accuracy"]["estimate"].loc[cell]
    return (
        f"Without {head}, {name} falls from {right:.1f} to {now:.1f} % of pairs: {said(told.loc[cell], 1)} points of "
        f"{MEASURES[told.loc[cell]['endpoint'].removeprefix('zero.')]}, and {said(margin.loc[cell])} nats of margin."
    )


def free(run: Results) -> str:
    """The heads whose loss does not matter: non-inferior, which a lack of significance is not."""
    cut = ", ".join(np.array(run.heads)[free_to_cut(run.effects("zero", "margin"))]) or "none is shown"
    return f"Free to cut by loss (non-inferior, one head at a time): {cut}."


def removable(table: pd.DataFrame, run: Results) -> list[str]:
    """All orders, and not the best alone: which one that is was not chosen on other sentences."""
    most = table[(table["head"] == ALL) & table["endpoint"].str.startswith("cut.") & (table["column"] == "bleu")]
    ends = sorted({int(most["estimate"].min()), int(most["estimate"].max())}) if len(most) else []
    number = " to ".join(map(str, ends)) + (", by the order of pruning," if len(ends) > 1 else "")
    words = f"heads can go for less than {run.bounds.bleu} BLEU without training afterwards"
    return [f"{number} of {len(run.heads)} {words}."] if ends else []


def of_study(table: pd.DataFrame, study: Study) -> tuple[str, ...]:
    """The findings over seeds, contrasts first. A row whose layers have a single head has no choice of heads, and is
    left out where heads are compared."""
    heads = {row: {head.head for run in runs for head in heads_named(run.heads)} for row, runs in study.rows.items()}
    several = [row for row, numbers in heads.items() if max(numbers, default=0) > 1]
    table = table[table["row"].isin(several) | (table["endpoint"] == "spread.contrast")]
    return tuple(told(table, OVER_SEEDS, f"{study.label} ", error=ERROR / max(len(study.rows), 1)))
