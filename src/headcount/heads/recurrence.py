"""Recurrence of heads over seeds: heads matched by what they are worth, specialists counted, spread of functions.

Heads of two seeds share no names, so they are matched by their effect profiles, one-to-one (Hungarian algorithm, Kuhn
1955). A run is one observation: intervals are those of seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from string import ascii_lowercase

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from headcount.errors import InputError
from headcount.heads.analysis import Arrays
from headcount.heads.interface import heads_named
from headcount.heads.over_seeds import Placed, SeedMean, placed, seed_mean
from headcount.report.statistics.bootstrap import Floats
from headcount.report.statistics.max_t import EffectTable

SHARE = 0.5  # of a phenomenon's margin that a specialist's removal costs
PERMUTATIONS = 200


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
class MatchedEffects:
    """Effects of matched heads over the runs of a row, arrays [head, column]. heads: names of the matched heads, a
    letter in each layer. mean; low, high: 95 % t interval over runs, NaN for a single run; differs: the number of runs
    in which the effect differs from 0 within the run."""

    row: str
    runs: int
    heads: tuple[str, ...]
    columns: tuple[str, ...]
    mean: Floats
    low: Floats
    high: Floats
    differs: NDArray[np.int64]
    worse: NDArray[np.int64]


@dataclass(frozen=True)
class Specialist:
    """Runs of a row that have a head for a phenomenon: its removal costs at least the stated share of the margin, with
    p <= 5 % within the run."""

    row: str
    phenomenon: str
    placed: Placed


@dataclass(frozen=True)
class Spread:
    """Over how many heads the effects on loss or on a phenomenon are spread: the effective number of heads of a run is
    the participation ratio (sum of harm)^2 / sum of harm^2 over its heads, 1 to their number; a run without harm has
    none. heads: its mean over runs; noise of small effects raises it. sure: the same over the heads whose effect is
    harm and differs from 0 within the run; small effects that are missed lower it. differ: the number of those heads.
    share: heads as a share of all. layers: the share of the harm in each layer."""

    row: str
    column: str
    heads: SeedMean
    sure: SeedMean
    differ: SeedMean
    share: SeedMean
    layers: Mapping[str, SeedMean]


def same_pairs(runs: Sequence[Arrays]) -> None:
    """Raise InputError unless all runs were measured on the same sentences and phenomena."""
    for run in runs[1:]:
        for name in ("row", "phenomenon", "grade"):
            if not np.array_equal(run[name], runs[0][name]):
                raise InputError(
                    f"the heads of these runs were measured on different sentences ({name} differs); measure all with "
                    "the same settings of test= and on the same corpus"
                )


def match(row: str, tables: Sequence[EffectTable], within: str = "layer", seed: int = 0) -> Match:
    """Match the heads of all runs, each with one of the same layer, kind, or of all. The test of the similarity
    permutes the effects on each phenomenon over the heads that may be matched: what is tested is that effects go
    together in a head, given the place.
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


def matched_effects(found: Match, tables: Sequence[EffectTable]) -> MatchedEffects:
    """The effects of the runs of a match on loss and phenomena, with heads in the places of those that they match."""
    effects = [seed_mean(cell) for cell in _cells([table.estimate for table in tables], found.heads)]
    shape = tables[0].estimate.shape
    mean, low, high = (
        np.array([getattr(each, name) for each in effects]).reshape(shape) for name in ("mean", "low", "high")
    )
    differs = [(table.verdict == "differs")[order] for table, order in zip(tables, found.heads, strict=True)]
    heads, columns = lettered(found.reference), tables[0].columns
    counts = np.array(differs).sum(axis=0)
    return MatchedEffects(found.row, len(tables), heads, columns, mean, low, high, counts, tables[0].worse)


def _cells(effects: Sequence[Floats], heads: NDArray[np.int64]) -> Floats:
    """Effects of all runs, [cell, run]."""
    ordered = np.stack([each[order] for each, order in zip(effects, heads, strict=True)], axis=-1)
    return ordered.reshape(-1, len(effects))


def lettered(names: Sequence[str]) -> tuple[str, ...]:
    """Names of matched heads: the layer, and a letter for the number of the head of the reference."""
    parts = [(head.place, head.head - 1) for head in heads_named(names)]
    return tuple(f"{place}.{ascii_lowercase[n % 26] * (1 + n // 26)}" for place, n in parts)


def specialist(row: str, tables: Sequence[EffectTable], phenomenon: str, share: float = SHARE) -> Specialist:
    """Count the runs with a head for a phenomenon."""
    found = []
    for table in tables:
        column = table.columns.index(phenomenon)
        large = shares(table)[:, column - 1] >= share
        heads = np.flatnonzero(large & (table.verdict[:, column] == "differs"))
        found.append([table.rows[head] for head in heads])
    return Specialist(row, phenomenon, placed(phenomenon, found))


def spread(row: str, tables: Sequence[EffectTable], column: str) -> Spread:
    """The effective number of heads by harm in a column, and the layers of that harm, over the runs of a row."""
    at = [table.columns.index(column) for table in tables]
    harms = [np.maximum(table.harm[:, place], 0) for table, place in zip(tables, at, strict=True)]
    differs = [(table.verdict[:, place] == "differs") for table, place in zip(tables, at, strict=True)]
    sure = [harm * differ for harm, differ in zip(harms, differs, strict=True)]
    number = np.array([len(harm) for harm in harms])
    heads, surely = (np.array([participation(harm) or np.nan for harm in each]) for each in (harms, sure))
    most = float(number.max())
    by_layer = [by_place(table.rows, harm) for table, harm in zip(tables, harms, strict=True)]
    layers = dict.fromkeys(layer for each in by_layer for layer in each)
    return Spread(
        row,
        column,
        seed_mean(heads, 1, most),
        seed_mean(surely, 1, most),
        seed_mean([(harm > 0).sum() for harm in sure], 0, most),
        seed_mean(heads / number, 0, 1),
        {layer: seed_mean([each.get(layer, 0.0) for each in by_layer], 0, 1) for layer in layers},
    )


def by_place(names: Sequence[str], harm: Floats) -> dict[str, float]:
    """The share of the harm in each layer; NaN where there is no harm."""
    layers = np.array([_place(name, "layer") for name in names])
    whole = float(harm.sum()) or float("nan")
    return {str(layer): float(harm[layers == layer].sum()) / whole for layer in dict.fromkeys(layers.tolist())}


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
