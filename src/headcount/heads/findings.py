"""Sentences that lead a page: what is lost without a head, and the largest figures that a test tells from chance."""

import pandas as pd

from headcount.heads.table import WHOLE
from headcount.report.rows import ALL_RUNS

MOST = 3  # figures of a sentence
TESTED = {
    "twins.share": ("Largest shares of one head of the way to the counterfactual, %", 100),
    "pairs.redundant": ("Pairs of heads, each prunable and both not: nats beyond the sum of both alone", 1),
    "twins.largest": ("Largest share of one head of the way to the counterfactual, mean over seeds, %", 100),
    "training.later": (
        "Half-rise of one head's effect less that of the log-probability difference, in log(1 + step)",
        1,
    ),
}
"""The title of the sentence on each endpoint, and the scale of its figures."""
MEASURES = {
    "zero.sensitivity": "sensitivity, which no shift towards one answer changes",
    "zero.accuracy": "accuracy, which a shift towards one answer changes too",
}

ENDPOINTS = (*MEASURES, "zero.margin", "whole.accuracy")


def findings(table: pd.DataFrame, label: str = "") -> tuple[str, ...]:
    """The findings of a page, from the table of heads.csv. label: what the rows of a sweep differ in."""
    sentences = lost(table)
    for endpoint, (title, scale) in TESTED.items():
        found = table[(table["endpoint"] == endpoint) & table["sure"] & (table["level"] != "layer")]
        found = found.loc[found["estimate"].abs().sort_values(ascending=False, kind="stable").index].head(MOST)
        named = found["head"].map(lambda head: "" if head == ALL_RUNS else f"{label}{head}, ")
        each = [
            f"{name}{row['column']}: {said(row, scale)}" for name, (_, row) in zip(named, found.iterrows(), strict=True)
        ]
        sentences += [f"{title}: {'; '.join(each)}."] if each else []
    return tuple(sentences)


def said(row: pd.Series, scale: float = 1) -> str:
    """An estimate with its interval, where it has one."""
    value, low, high = (f"{scale * row[name]:z.{1 if scale > 1 else 2}f}" for name in ("estimate", "low", "high"))
    return (value if pd.isna(row["low"]) else f"{value} [{low}, {high}]").replace("-", "−")


def lost(table: pd.DataFrame) -> list[str]:
    """The phenomenon that surely loses most sensitivity without a head, or accuracy where its pairs have no twin, and
    surely loses margin; where none does, the largest sure change of the loss, if there is one."""
    at = {name: table[table["endpoint"] == name].set_index(["head", "column"]) for name in ENDPOINTS}
    told = pd.concat([at[name] for name in MEASURES])
    told = told[~told.index.duplicated()]
    margin = at["zero.margin"][lambda row: row["sure"] & (row["harm"] > 0)]
    told = told[(told["harm"] > 0) & (told["high"] < 0) & told.index.isin(margin.index)]
    if len(told):
        cell = head, name = told["harm"].idxmax()
        right = at["whole.accuracy"]["estimate"].loc[(WHOLE, name)]
        now = right + at["zero.accuracy"]["estimate"].loc[cell]
        return [
            f"Without {head}, {name} falls from {right:.1f} to {now:.1f} % of pairs: {said(told.loc[cell])} points of "
            f"{MEASURES[told.loc[cell]['endpoint']]}, and {said(margin.loc[cell])} nats of log-probability difference."
        ]
    losses = table[table["endpoint"] == "zero.loss"]
    changed = losses[losses["sure"]].sort_values("harm")
    words = f"{len(changed)} of {len(losses)} heads change the loss beyond chance, most "
    return [f"{words}{row['head']}: {said(row)} nats per sentence." for _, row in changed.tail(1).iterrows()]
