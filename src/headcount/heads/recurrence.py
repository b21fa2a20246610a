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
from headcount.heads.importance import harms
from headcount.heads.interface import heads_named
from headcount.heads.over_seeds import Placed, SeedMean, placed, seed_mean
from headcount.heads.statistics import pair_scores, sentence_losses
from headcount.statistics.bootstrap import Floats
from headcount.statistics.max_t import EffectTable

SHARE = 0.5  # of a phenomenon's margin that a specialist's removal costs
PERMUTATIONS = 200


@dataclass(frozen=True)
class Match:
    """Heads of the runs of a row, matched on half of the pairs. similarity: mean over pairs of runs, 1 for equal
    profiles. null: its mean over profiles whose effects are permuted over the heads of a layer, each phenomenon on its
    own; p: the share of those with the same or more. reference: the heads of the run that is most similar to the
    others. heads [run, head]: the number of each run's head that matches a head of the reference."""

    row: str
    runs: int
    reference: tuple[str, ...]
    similarity: float
    null: float
    p: float
    heads: NDArray[np.int64]


@dataclass(frozen=True)
class MatchedEffects:
    """Effects of matched heads over the runs of a row, on the pairs that they were not matched on, arrays [head,
    column]. heads: names of the matched heads, a letter in each layer. mean; low, high: 95 % t interval over runs, see
    `SeedMean`; differs: the number of runs in which the effect differs from 0 within the run."""

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
class Spread:
    """Over how many heads the effects on loss or on a phenomenon are spread. heads: the effective number of heads of a
    run, see `participation`, mean over runs. share: the same as a share of all heads. layers: the share of the harm in
    each layer; help counts as 0."""

    column: str
    heads: SeedMean
    share: SeedMean
    layers: Mapping[str, SeedMean]


def same_pairs(runs: Sequence[Arrays]) -> None:
    """Raise InputError unless all runs were measured on pairs of the same phenomena and grades, row by row. Their
    sentences may be others: a run is one observation."""
    for run in runs[1:]:
        for name in ("row", "phenomenon", "grade"):
            if not np.array_equal(run[name], runs[0][name]):
                raise InputError(
                    f"the heads of these runs were measured on test sets of different design ({name} of their pairs "
                    "differs); measure all with the same settings of test= and on a corpus of the same kind"
                )


def half_effects(arrays: Arrays, half: int, endpoint: str = "margin") -> tuple[Floats, Floats]:
    """Mean effects [head, column] of zero ablation on loss and phenomena, and the means [column] of the whole model, on
    half 0 or 1 of the pairs of each phenomenon, drawn at random; the loss on all sentences but those of the other."""
    shuffled = np.random.default_rng(0).permutation(len(arrays["row"]))
    ordered = shuffled[np.argsort(arrays["phenomenon"][shuffled], kind="stable")]
    own, other = ordered[half::2], ordered[1 - half :: 2]
    losses, scores = sentence_losses(arrays, "zero"), pair_scores(arrays, "zero", endpoint)[:, own]
    columns = [np.delete(losses, arrays["row"][other], axis=1)]
    columns += [scores[:, arrays["phenomenon"][own] == name] for name in np.unique(arrays["phenomenon"])]
    means = np.stack([each.sum(axis=1) / max(each.shape[1], 1) for each in columns], axis=1)
    return means[1:] - means[0], means[0]


def match(row: str, runs: Sequence[Arrays], seed: int = 0) -> Match:
    """Match the heads of all runs, each with one of the same layer, by their effects on half of the pairs, from the
    arrays of `ablation`. The test of the similarity permutes the effects on each phenomenon over the heads of a layer:
    what is tested is that effects go together in a head, given the layer.
    """
    names = tuple(runs[0]["head"].tolist())
    places = np.unique([str(head.place) for head in heads_named(names)], return_inverse=True)[1]
    halves = [half_effects(run, 0) for run in runs]
    effects = [shares(-change[:, 1:], whole[1:]) for change, whole in halves]
    profiles = np.stack([each / np.maximum(np.sqrt((each**2).mean(axis=0)), 1e-12) for each in effects])
    similarity = _similarities(profiles, places)
    random = np.random.default_rng(seed)
    null = [_mean(_similarities(_permuted(profiles, places, random), places)) for _ in range(PERMUTATIONS)]
    p = (1 + sum(each >= _mean(similarity) for each in null)) / (1 + PERMUTATIONS)
    reference = int(similarity.sum(axis=1).argmax())
    heads = np.stack([assigned(profiles[reference], each, places)[0] for each in profiles])
    return Match(
        row, len(runs), tuple(runs[reference]["head"].tolist()), _mean(similarity), float(np.mean(null)), p, heads
    )


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


def matched_effects(
    found: Match, runs: Sequence[Arrays], tables: Sequence[EffectTable], endpoint: str = "margin"
) -> MatchedEffects:
    """The effects of the runs of a match on loss and phenomena, with heads in the places of those that they match, on
    the other half of the pairs. tables: of the runs, which say what differs within each."""
    effects = [half_effects(run, 1, endpoint)[0][order] for run, order in zip(runs, found.heads, strict=True)]
    means = [seed_mean(cell) for cell in np.stack(effects, axis=-1).reshape(-1, len(runs))]
    mean, low, high = (
        np.array([getattr(each, name) for each in means]).reshape(effects[0].shape) for name in ("mean", "low", "high")
    )
    differs = [(table.verdict == "differs")[order] for table, order in zip(tables, found.heads, strict=True)]
    heads, columns = lettered(found.reference), tables[0].columns
    counts = np.array(differs).sum(axis=0)
    return MatchedEffects(found.row, len(runs), heads, columns, mean, low, high, counts, tables[0].worse)


def lettered(names: Sequence[str]) -> tuple[str, ...]:
    """Names of matched heads: the layer, and a letter for the number of the head of the reference."""
    parts = [(head.place, head.head - 1) for head in heads_named(names)]
    return tuple(f"{place}.{ascii_lowercase[n % 26] * (1 + n // 26)}" for place, n in parts)


def specialist(tables: Sequence[EffectTable], phenomenon: str) -> Placed:
    """Count the runs with a head for a phenomenon: its removal costs `SHARE` of the margin or more, and the effect
    differs from 0 within the run."""
    found = []
    for table in tables:
        column = table.columns.index(phenomenon)
        large = shares(table.harm, table.whole)[:, column] >= SHARE
        heads = np.flatnonzero(large & (table.verdict[:, column] == "differs"))
        found.append([table.rows[head] for head in heads])
    return placed(phenomenon, found)


def spread(runs: Sequence[Arrays], column: str) -> Spread:
    """The effective number of heads by harm in a column, and the layers of that harm, over the runs of a row, from the
    arrays of `ablation`."""
    harm = [harms(run, column) for run in runs]
    number = np.array([len(each) for each in harm])
    heads = np.array([participation(each) for each in harm])
    by_layer = [by_place(run["head"].tolist(), each.mean(axis=1)) for run, each in zip(runs, harm, strict=True)]
    layers = dict.fromkeys(layer for each in by_layer for layer in each)
    return Spread(
        column,
        seed_mean(heads, 1, float(number.max())),
        seed_mean(heads / number, 0, 1),
        {layer: seed_mean([each.get(layer, 0.0) for each in by_layer], 0, 1) for layer in layers},
    )


def by_place(names: Sequence[str], harm: Floats) -> dict[str, float]:
    """The share of the harm in each layer; NaN where there is no harm."""
    layers, harm = np.array([str(head.place) for head in heads_named(names)]), np.maximum(harm, 0)
    whole = float(harm.sum()) or float("nan")
    return {str(layer): float(harm[layers == layer].sum()) / whole for layer in dict.fromkeys(layers.tolist())}


def participation(harm: Floats) -> float:
    """The effective number of heads, (sum of h)^2 / sum of h^2 over heads, h the mean of harm [head, unit], from 1 to
    their number. Both are estimated without the noise of the units: by products of different ones, as those of two
    halves, the mean over all halves. NaN where there is no harm, or where either is not above 0."""
    heads, units = harm.shape
    whole = harm.sum(axis=0)
    above = max(whole.mean(), 0) ** 2 - whole.var(ddof=min(units - 1, 1)) / units
    below = float((harm.mean(axis=1) ** 2 - harm.var(axis=1, ddof=min(units - 1, 1)) / units).sum())
    return float(np.clip(above / below, 1, heads)) if above > 0 and below > 0 else float("nan")


def shares(harm: Floats, whole: Floats) -> Floats:
    """Harm [head, phenomenon] as a share of the whole model's margin [phenomenon]; 0 where that is not positive."""
    return np.divide(harm, whole, out=np.zeros_like(harm), where=whole > 0)


def _similarities(profiles: Floats, places: NDArray) -> Floats:
    """Similarities of all pairs of runs [run, run], 0 on the diagonal. profiles: [run, head, phenomenon]."""
    found = np.zeros((len(profiles),) * 2)
    for i, j in combinations(range(len(profiles)), 2):
        found[i, j] = found[j, i] = assigned(profiles[i], profiles[j], places)[1]
    return found


def _mean(similarity: Floats) -> float:
    return float(similarity[np.triu_indices(len(similarity), 1)].mean())
