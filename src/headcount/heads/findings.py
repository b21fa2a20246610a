"""Sentences that lead a page: contrasts with their intervals, from the table of heads.csv."""

import numpy as np
import pandas as pd

from headcount.heads.interface import heads_named
from headcount.heads.results import Results, Study
from headcount.heads.statistics import LOSS, free_to_cut
from headcount.heads.table import ALL, WHOLE
from headcount.statistics.max_t import ERROR

LARGE = 0.25  # the least share that carries a cue


def said(row: pd.Series, digits: int = 2, scale: float = 1) -> str:
    """An estimate with its interval, where it has one."""
    value, low, high = (f"{scale * row[name]:z.{digits}f}" for name in ("estimate", "low", "high"))
    return (value if pd.isna(row["low"]) else f"{value} [{low}, {high}]").replace("-", "−")


def of_run(table: pd.DataFrame, run: Results) -> tuple[str, ...]:
    """The findings of a run, the most striking one first."""
    at = {str(name): own.set_index(["head", "column"]) for name, own in table.groupby("endpoint", sort=False)}
    told = [*lost(at, run), carried(at), *linked(at), *paired(at), guided(at), removable(table, run)]
    return tuple(filter(None, told))


def lost(at: dict[str, pd.DataFrame], run: Results) -> list[str]:
    """The phenomenon that loses most sensitivity without a head, tested by the margin, which has more power; the change
    of the loss where there are no phenomena; and the heads that are free to cut."""
    if "zero.loss" not in at:
        return []
    names, effects = run.heads, run.effects("zero", "margin")
    cut = ", ".join(np.array(names)[free_to_cut(effects)]) or "none is shown"
    free = f"Free to cut by loss (non-inferior, one head at a time): {cut}."
    margin, told = at.get("zero.margin"), at.get("zero.sensitivity")
    if margin is None or told is None:
        worst = at["zero.loss"]["estimate"].idxmax()
        count = int(at["zero.loss"]["sure"].sum())
        most = f"most without {worst[0]}: {said(at['zero.loss'].loc[worst])} nats a sentence"
        return [f"{count} of {len(names)} heads change the loss beyond chance; {most}.", free]
    harmful = told[margin["sure"] & (margin["harm"] > 0) & (told["harm"] > 0)]
    if not len(harmful):
        return [free]
    cell = head, name = harmful["harm"].idxmax()
    right = at["whole.accuracy"]["estimate"].loc[(WHOLE, name)]
    now = right + at["zero.accuracy"]["estimate"].loc[cell]
    return [
        f"Without {head}, {name} falls from {right:.1f} to {now:.1f} % of pairs: {said(told.loc[cell], 1)} points of "
        f"sensitivity, which no shift towards one answer changes, and {said(margin.loc[cell])} nats of margin.",
        free,
    ]


def carried(at: dict[str, pd.DataFrame]) -> str:
    """The head with the largest share of the way to the twin."""
    shares = at.get("twins.share", pd.DataFrame(columns=["level", "sure"])).query('level == "head" and sure')
    if not len(shares):
        return ""
    cell = head, name = shares["estimate"].idxmax()
    verb = "carries" if shares["estimate"].loc[cell] >= LARGE else "has the largest share of"
    return f"{head} {verb} the cue of {name}: {said(shares.loc[cell], 0, 100)} % of the way to the twin."


def linked(at: dict[str, pd.DataFrame]) -> list[str]:
    """Roles that are claimed, and the head that aligns best against the best rule without attention."""
    told = []
    if "link.gain" in at:
        held = at["link.gain"].query('verdict == "role"').index
        names = ", ".join(f"{head} ({link.partition(',')[0]})" for head, link in held)
        told.append(f"Heads with a role: {names or 'none is shown'}.")
    for (head, column), row in at.get("alignment.excess", pd.DataFrame(columns=["verdict"])).iterrows():
        if row["verdict"].startswith("best"):
            points = f"{said(row, 1, 100)} points of alignment error less the best rule without attention"
            told.append(f"{head}, by {column}, has {points}.")
    return told


def paired(at: dict[str, pd.DataFrame]) -> list[str]:
    """The pair of heads that may replace each other with the surest interaction."""
    found = at.get("pairs.redundant", pd.DataFrame()).head(1)
    return [f"{pair} may replace each other in {name}: {said(row)} nats beyond the sum of both alone."
            for (pair, name), row in found.iterrows()]  # fmt: skip


def guided(at: dict[str, pd.DataFrame]) -> str:
    """The rank correlations of importance for the loss."""
    if "proxy.loss_importance.rank" not in at:
        return ""
    ranks = at["proxy.loss_importance.rank"]["estimate"].droplevel("head")
    others = ranks.drop(LOSS, errors="ignore")
    between = f"; with the harm to phenomena, of {others.min():z.2f} to {others.max():z.2f}" if len(others) else ""
    text = f"over heads of importance for the loss with the harm to the loss is {ranks.get(LOSS, np.nan):z.2f}{between}"
    return f"The rank correlation {text}.".replace("-", "−")


def removable(table: pd.DataFrame, run: Results) -> str:
    """All orders, and not the best alone: which one that is was not chosen on other sentences."""
    most = table[(table["head"] == ALL) & table["endpoint"].str.startswith("cut.") & (table["column"] == "bleu")]
    if not len(most):
        return ""
    ends = sorted({int(most["estimate"].min()), int(most["estimate"].max())})
    number = " to ".join(map(str, ends)) + (", by the order of pruning," if len(ends) > 1 else "")
    return (
        f"{number} of {len(run.heads)} heads can go for less than {run.bounds.bleu} BLEU without training afterwards."
    )


def of_study(table: pd.DataFrame, study: Study) -> tuple[str, ...]:
    """The findings over seeds, contrasts first. A row whose layers have a single head has no choice of heads, and is
    left out where heads are compared."""
    several = {
        row for row, runs in study.rows.items() if any(h.head > 1 for run in runs for h in heads_named(run.heads))
    }
    own, told = table[table["row"].isin(several)], []
    for _, row in table[table["endpoint"] == "spread.contrast"].iterrows():
        points = f"{said(row, 0, 100)} points of all heads"
        told.append(f"{study.label} {row['head']}: the effective number of heads of the loss differs by {points}.")
    similar = own[own["endpoint"] == "matched.similarity"].set_index(["row", "column"])
    p = similar["p"].dropna().astype(float) * max(similar["p"].count(), 1)
    if len(p) and p.min() <= ERROR:
        label = p.idxmin()[0]
        both = " against ".join(
            f"{similar['estimate'].loc[(label, name)]:.2f} {name}" for name in ("observed", "at random")
        )
        told.append(f"{study.label} {label}: the similarity of matched heads is {both} (p {p.min():.3f}, corrected).")
    cues = own[(own["endpoint"] == "twins.largest") & own["sure"] & (own["estimate"] > 0)]
    for _, row in cues.nlargest(1, "estimate").iterrows():
        share = f"{said(row, 0, 100)} % of the way to the twin"
        told.append(f"{study.label} {row['row']}: one head carries {share} in {row['column']}, the most of all.")
    excess = own[(own["endpoint"] == "alignment.error") & (own["column"] == "excess")]
    each = "; ".join(f"{study.label} {row['row']}: {said(row, 1, 100)}" for _, row in excess.iterrows())
    told += [f"Points of alignment error of the last layer's first cross head above the best: {each}."] if each else []
    for endpoint, words in {"recurrence": "a head for a phenomenon", "role": "a head with a role"}.items():
        rows = own[(own["endpoint"] == endpoint) & (own["level"] == "") & ~own["column"].str.contains(",")]
        every = [f"{row.row}: {row.column}" for row in rows.itertuples() if row.estimate == 1 and row.runs > 1]
        told += [f"In every run there is {words}, {study.label} {'; '.join(every)}."] if every else []
    order = table[(table["endpoint"] == "training.later") & table["sure"]]
    for _, row in order.iterrows():
        first = "before" if row["estimate"] < 0 else "after"
        told.append(f"{study.label} {row['row']}: in {row['column']} the effect of a head rises {first} the margin.")
    return tuple(told)
