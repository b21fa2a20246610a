"""Recurrence of heads over seeds: heads matched by what they are worth, specialists counted, spread of functions.

Heads of two seeds share no names, so they are matched by their effect profiles, one-to-one (Hungarian algorithm, Kuhn
1955). A run is one observation: intervals are those of seeds.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import linear_sum_assignment

from headcount.errors import InputError
from headcount.heads.analysis import Arrays
from headcount.heads.interface import heads_named
from headcount.heads.statistics import effect_table
from headcount.report.statistics.bootstrap import Floats
from headcount.report.statistics.max_t import ERROR, EffectTable

SHARE = 0.5  # of a phenomenon's margin that a specialist's removal costs
PERMUTATIONS = 200
WITHIN = ("layer", "kind", "all")


@dataclass(frozen=True)
class Match:
    """Heads of the runs of a row, matched. similarity: mean over pairs of runs, 1 for equal profiles. null: its mean
    over profiles whose effects are permuted over the heads of a place, each phenomenon on its own; p: the share of
    those with the same or more. heads [run, head]: the number of each run's head that matches a head of the reference,
    the run that is most similar to the others. profile [head, phenomenon]: mean over runs of the share of the margin
    that the head costs."""

    row: str
    runs: int
    reference: tuple[str, ...]
    similarity: float
    null: float
    p: float
    heads: NDArray[np.int64]
    profile: Floats


@dataclass(frozen=True)
class Specialist:
    """Runs of a row that have a head for a phenomenon: its removal costs at least the stated share of the margin, with
    p <= 5 % within the run. low, high: 95 % interval of the share of runs (Clopper and Pearson 1934). layers: runs with
    such a head in each layer."""

    row: str
    phenomenon: str
    runs: int
    found: int
    low: float
    high: float
    layers: Mapping[str, int]


@dataclass(frozen=True)
class Spread:
    """Over how many heads the effects on loss or on a phenomenon are spread: the participation ratio (sum of harm)^2 /
    sum of harm^2, 1 to the number of heads, its mean over runs and 95 % t interval (NaN for a single run). share: of
    the heads. Noise of small effects raises the ratio."""

    row: str
    column: str
    runs: int
    heads: float
    low: float
    high: float
    share: float


@dataclass(frozen=True)
class Recurrence:
    """Tables over the rows of a sweep. phenomena: their names."""

    phenomena: tuple[str, ...]
    matches: tuple[Match, ...]
    specialists: tuple[Specialist, ...]
    spreads: tuple[Spread, ...]


def recurrence(rows: Mapping[str, Sequence[Arrays]], within: str = "layer", share: float = SHARE) -> Recurrence:
    """Tables from the arrays of `ablation` of each run, by row. within: heads are matched with those of the same layer,
    of the same kind, or with all. Raises InputError for runs that were measured on different pairs."""
    if within not in WITHIN:
        raise InputError(f"within={within}: choose from {', '.join(WITHIN)}")
    rows = {label: runs for label, runs in rows.items() if runs}
    same_pairs([run for runs in rows.values() for run in runs])
    tables = {label: [effect_table(run) for run in runs] for label, runs in rows.items()}
    phenomena = next(iter(tables.values()))[0].columns[1:]
    alike = {label: found for label, found in tables.items() if len({table.rows for table in found}) == 1}
    return Recurrence(
        phenomena,
        tuple(match(label, found, within) for label, found in alike.items() if len(found) > 1 and phenomena),
        tuple(specialist(label, found, name, share) for label, found in tables.items() for name in phenomena),
        tuple(spread(label, found, name) for label, found in tables.items() for name in ("loss", *phenomena)),
    )


def same_pairs(runs: Sequence[Arrays]) -> None:
    """Raise InputError unless all runs were measured on the same sentences and phenomena."""
    for run in runs[1:]:
        for name in ("row", "phenomenon", "grade"):
            if not np.array_equal(run[name], runs[0][name]):
                raise InputError(
                    f"the heads of these runs were measured on different sentences ({name} differs); measure all with "
                    "the same settings of test= and on the same corpus"
                )


def match(row: str, tables: Sequence[EffectTable], within: str, seed: int = 0) -> Match:
    """Match the heads of all runs, and test the similarity against profiles in which the effects on each phenomenon are
    permuted over the heads that may be matched: what is tested is that effects go together in a head, given the place.
    """
    places = np.unique([_place(name, within) for name in tables[0].rows], return_inverse=True)[1]
    effects = [shares(table) for table in tables]
    profiles = np.stack([each / np.maximum(np.sqrt((each**2).mean(axis=0)), 1e-12) for each in effects])
    similarity = _similarities(profiles, places)
    random = np.random.default_rng(seed)
    null = [_mean(_similarities(_permuted(profiles, places, random), places)) for _ in range(PERMUTATIONS)]
    p = (1 + sum(each >= _mean(similarity) for each in null)) / (1 + PERMUTATIONS)
    reference = int(similarity.sum(axis=1).argmax())
    heads = np.stack([assigned(profiles[reference], each, places)[0] for each in profiles])
    profile = np.mean([each[order] for each, order in zip(effects, heads, strict=True)], axis=0)
    runs, names = len(tables), tables[reference].rows
    return Match(row, runs, names, _mean(similarity), float(np.mean(null)), p, heads, profile)


def _permuted(profiles: Floats, places: NDArray, random: np.random.Generator) -> Floats:
    """`profiles` [run, head, phenomenon], each phenomenon of each run permuted over the heads of a place."""
    found = profiles.copy()
    for place in np.unique(places):
        members = np.flatnonzero(places == place)
        found[:, members] = random.permuted(profiles[:, members], axis=1)
    return found


def assigned(first: Floats, second: Floats, places: NDArray) -> tuple[NDArray[np.int64], float]:
    """For each head of the first run the head of the second that it is matched with, among those of the same place, and
    the similarity: the sum of inner products of matched profiles [head, phenomenon] over the product of their norms."""
    products = first @ second.T
    order = np.empty(len(first), dtype=np.int64)
    for place in np.unique(places):
        members = np.flatnonzero(places == place)
        row, column = linear_sum_assignment(products[np.ix_(members, members)], maximize=True)
        order[members[row]] = members[column]
    norms = float(np.linalg.norm(first) * np.linalg.norm(second))
    total = float(products[np.arange(len(first)), order].sum())
    return order, total / norms if norms else 0.0


def specialist(row: str, tables: Sequence[EffectTable], phenomenon: str, share: float) -> Specialist:
    """Count the runs with a head for a phenomenon."""
    layers: Counter[str] = Counter()
    found = 0
    for table in tables:
        column = table.columns.index(phenomenon)
        large = shares(table)[:, column - 1] >= share
        heads = np.flatnonzero(large & (table.verdict[:, column] == "differs"))
        layers.update({_place(table.rows[head], "layer") for head in heads})
        found += bool(len(heads))
    interval = stats.binomtest(found, len(tables)).proportion_ci(1 - ERROR, method="exact")
    by_layer = dict(sorted(layers.items()))
    return Specialist(row, phenomenon, len(tables), found, float(interval.low), float(interval.high), by_layer)


def spread(row: str, tables: Sequence[EffectTable], column: str) -> Spread:
    """The participation ratio of harm in a column over heads, over the runs of a row."""
    ratios = np.array([participation(table.harm[:, table.columns.index(column)]) for table in tables])
    mean, half = float(ratios.mean()), float("nan")
    if len(ratios) > 1:
        half = float(stats.t.isf(ERROR / 2, len(ratios) - 1) * ratios.std(ddof=1) / np.sqrt(len(ratios)))
    heads = float(np.mean([len(table.rows) for table in tables]))
    return Spread(row, column, len(ratios), mean, mean - half, mean + half, mean / heads)


def participation(harm: Floats) -> float:
    """(sum of harm)^2 / sum of harm^2 over heads; heads that help when they are removed count as 0."""
    harm = np.maximum(harm, 0)
    squares = float((harm**2).sum())
    return float(harm.sum()) ** 2 / squares if squares else 0.0


def shares(table: EffectTable) -> Floats:
    """Harm of each head as a share of the whole model's margin, [head, phenomenon]; 0 where that is not positive."""
    whole = table.whole[1:]
    return np.divide(table.harm[:, 1:], whole, out=np.zeros_like(table.harm[:, 1:]), where=whole > 0)


def _place(name: str, within: str) -> str:
    (head,) = heads_named([name])
    return {"layer": str(head.place), "kind": head.kind, "all": ""}[within]


def _similarities(profiles: Floats, places: NDArray) -> Floats:
    """Similarities of all pairs of runs [run, run], 0 on the diagonal. profiles: [run, head, phenomenon]."""
    found = np.zeros((len(profiles),) * 2)
    for i, j in combinations(range(len(profiles)), 2):
        found[i, j] = found[j, i] = assigned(profiles[i], profiles[j], places)[1]
    return found


def _mean(similarity: Floats) -> float:
    return float(similarity[np.triu_indices(len(similarity), 1)].mean())
