"""Replication of heads across seeds: heads of two runs share no names, so they are matched by what they are worth.

The match is one-to-one within each layer (Hungarian algorithm, Kuhn 1955). A run is one observation: intervals are
those of seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from string import ascii_lowercase

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from headcount.errors import InputError
from headcount.heads.analysis import Arrays
from headcount.heads.interface import heads_named
from headcount.heads.statistics import pair_scores
from headcount.statistics.bootstrap import Floats

PERMUTATIONS = 200


@dataclass(frozen=True)
class Match:
    """Heads of the runs of a row, matched on half of the pairs. similarity: mean over pairs of runs, 1 for equal
    profiles. null: its mean over profiles whose effects are permuted over the heads of a layer, each phenomenon on its
    own; p: the share of those with the same or more. names: of the matched heads, the layer and a letter for the number
    of the head in the run that is most similar to the others. heads [run, head]: the number of each run's head."""

    names: tuple[str, ...]
    similarity: float
    null: float
    p: float
    heads: NDArray[np.int64]


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


def half(arrays: Arrays, number: int) -> Arrays:
    """The arrays of zero ablation of half 0 or 1 of the pairs of each phenomenon, drawn at random, and of all sentences
    but those of the other half."""
    shuffled = np.random.default_rng(0).permutation(len(arrays["row"]))
    ordered = shuffled[np.argsort(arrays["phenomenon"][shuffled], kind="stable")]
    pairs, lengths = np.sort(ordered[number::2]), arrays["zero.lengths"]
    kept = np.ones(max(len(lengths), 1 + arrays["row"].max(initial=-1)), dtype=bool)
    kept[arrays["row"][ordered[1 - number :: 2]]] = False
    own = kept[: len(lengths)]
    found = {name: arrays[name][pairs] for name in ("phenomenon", "grade")}
    found |= {f"zero.{name}": arrays[f"zero.{name}"][:, pairs] for name in ("right", "wrong")}
    found |= {"row": (kept.cumsum() - 1)[arrays["row"][pairs]], "zero.lengths": lengths[own], "head": arrays["head"]}
    return found | {"zero.reference": arrays["zero.reference"][:, np.repeat(own, lengths)]}


def match(runs: Sequence[Arrays], seed: int = 0) -> Match:
    """Match the heads of all runs, each with one of the same layer, by their effects on half of the pairs, from the
    arrays of `ablation`. The test of the similarity permutes the effects on each phenomenon over the heads of a layer:
    what is tested is that effects go together in a head, given the layer."""
    effects = [_harms(half(run, 0)) for run in runs]
    profiles = np.stack([each / np.maximum(np.sqrt((each**2).mean(axis=0)), 1e-12) for each in effects])
    heads = heads_named(runs[0]["head"].tolist())
    places = np.unique([str(head.place) for head in heads], return_inverse=True)[1]
    similarity = _similarities(profiles, places)
    random = np.random.default_rng(seed)
    null = [_mean(_similarities(_permuted(profiles, places, random), places)) for _ in range(PERMUTATIONS)]
    p = (1 + sum(each >= _mean(similarity) for each in null)) / (1 + PERMUTATIONS)
    reference = profiles[int(similarity.sum(axis=1).argmax())]
    numbers = np.stack([assigned(reference, each, places)[0] for each in profiles])
    letters = (ascii_lowercase[(head.head - 1) % 26] * (1 + (head.head - 1) // 26) for head in heads)
    names = tuple(f"{head.place}.{letter}" for head, letter in zip(heads, letters, strict=True))
    return Match(names, _mean(similarity), float(np.mean(null)), p, numbers)


def _harms(arrays: Arrays) -> Floats:
    """Mean harm of zero ablation to each phenomenon, as a share of its margin, [head, phenomenon]."""
    scores, names = pair_scores(arrays, "zero", "margin"), np.unique(arrays["phenomenon"])
    means = np.stack([scores[:, arrays["phenomenon"] == name].mean(axis=1) for name in names], axis=1)
    return shares(means[0] - means[1:], means[0])


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
