"""Pairwise interactions of heads: the harm of removing two together beyond the sum of the harm of each alone.

I_ij = D_ij - D_i - D_j, D the harm of zero ablation. Two heads that do the same work cost little alone and much
together, so their interaction is harm; the reverse need not hold.
"""

from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headcount.heads.ablation import effects, without_each
from headcount.heads.analysis import Analysis, Arrays, Part
from headcount.heads.evaluation_set import evaluation_set
from headcount.heads.interface import Heads
from headcount.heads.likelihood import Progress
from headcount.heads.statistics import NO_HARM, Bounds, columns_of, pair_scores, sentence_losses
from headcount.statistics.bootstrap import Floats
from headcount.statistics.max_t import EffectTable, compared


def pairs_of(heads: Heads, most: int, seed: int) -> NDArray[np.int64]:
    """At most this many pairs of heads [pair, 2], all if there are no more: first those of one layer, then any."""
    pairs = np.array(list(combinations(range(len(heads)), 2)), dtype=np.int64).reshape(-1, 2)
    shuffled = pairs[np.random.default_rng(seed).permutation(len(pairs))]
    apart = [heads.names[i].place != heads.names[j].place for i, j in shuffled]
    chosen = shuffled[np.argsort(apart, kind="stable")][:most]
    return chosen[np.lexsort((chosen[:, 1], chosen[:, 0]))]


def without_pairs(heads: Heads, pairs: NDArray[np.int64]) -> Tensor:
    """Gates [pair, head] with both heads of each pair off."""
    gates = torch.ones(len(pairs), len(heads), device=heads.model.device)
    gates[torch.arange(len(pairs))[:, None], torch.from_numpy(pairs)] = 0
    return gates


def interactions(analysis: Analysis, progress: Progress) -> Arrays:
    """Log-probabilities with each head and each pair of heads off, on a part of the test sentences: the arrays of
    `Effects` as zero.reference and so on; setting 0 is the whole model, then each head is off, then each pair. Also
    pair [pair, 2], the numbers of its heads in head, the names; and row, phenomenon and grade of each pair of
    translations."""
    heads, settings = analysis.heads, analysis.settings
    test = evaluation_set(analysis.run, analysis.test.rows, settings.pair_sentences)
    pairs = pairs_of(heads, settings.pairs, settings.seed)
    gates = torch.cat([without_each(heads), without_pairs(heads, pairs)])
    found = effects(heads, test, gates, progress=progress)
    arrays = {f"zero.{name}": value for name, value in vars(found).items()}
    return {**arrays, **test.labels, "pair": pairs, "head": heads.labels}


PAIRS = Part(
    "pairs",
    "pairs of heads switched off together",
    interactions,
    steps=lambda analysis: 2 * min(analysis.settings.pair_sentences, len(analysis.test)),
    settings=("pairs", "pair_sentences"),
)


class Redundancy(NamedTuple):
    """Two heads that are redundant in a column of the table, see `redundancies`. alone, together: harm of each and of
    both; low, high: the simultaneous interval of the harm beyond the sum."""

    first: str
    second: str
    column: str
    alone: tuple[float, float]
    together: float
    low: float
    high: float


def interaction_table(arrays: Arrays, bounds: Bounds = NO_HARM, seed: int = 0) -> EffectTable:
    """Interactions of all pairs of heads in loss and in the margins of phenomena; rows are "cross1.1 + cross1.2"."""
    losses, margins = _endpoints(arrays)
    values = _interaction(losses, arrays), _interaction(margins, arrays)
    return _table(arrays, values, _pair_names(arrays), bounds, seed)


def joint_table(arrays: Arrays, bounds: Bounds, seed: int = 0) -> EffectTable:
    """Effects of each head alone, then of each pair, on the sentences of the pairs."""
    names = (*arrays["head"].tolist(), *_pair_names(arrays))
    return _table(arrays, _endpoints(arrays), names, bounds, seed)


def redundancies(arrays: Arrays, bounds: Bounds, seed: int = 0) -> list[Redundancy]:
    """Pairs of which each head alone is free to cut and both together are not: alone their harm is below the bound of
    the column (non-inferior); together it is harm with a p-value of at most 5 %, not below the bound, and so is their
    interaction. The largest interaction comes first."""
    beyond, joint = interaction_table(arrays, bounds, seed), joint_table(arrays, bounds, seed)
    count = len(arrays["head"])
    free = joint.harmless[arrays["pair"]].all(axis=1)
    harmful = (joint.verdict == "differs") & (joint.harm > 0) & ~joint.harmless
    chosen = (beyond.verdict == "differs") & (beyond.harm > 0) & harmful[count:] & free
    found = []
    for pair, column in np.argwhere(chosen):
        first, second = arrays["pair"][pair]
        ends = sorted(float(beyond.worse[column] * end[pair, column]) for end in (beyond.low, beyond.high))
        harm = joint.harm[:, column].tolist()
        names = joint.rows[first], joint.rows[second], joint.columns[column]
        found.append(Redundancy(*names, (harm[first], harm[second]), harm[count + pair], ends[0], ends[1]))
    return sorted(found, key=lambda each: -each.low)


def matrix(arrays: Arrays, values: Floats) -> Floats:
    """Values of pairs [pair] as a symmetric matrix [head, head], NaN where a pair was not measured."""
    found = np.full((len(arrays["head"]),) * 2, np.nan)
    for (first, second), value in zip(arrays["pair"], values, strict=True):
        found[first, second] = found[second, first] = value
    return found


def _endpoints(arrays: Arrays) -> tuple[Floats, Floats]:
    """Losses [setting, sentence] and margins [setting, pair of translations]."""
    return sentence_losses(arrays, "zero"), pair_scores(arrays, "zero", "margin")


def _interaction(values: Floats, arrays: Arrays) -> Floats:
    """The whole model's values and, added to them, the interactions [1 + pair, unit]."""
    count = len(arrays["head"])
    change = values - values[0]
    first, second = (change[1 + arrays["pair"][:, side]] for side in (0, 1))
    return np.concatenate([values[:1], values[0] + change[1 + count :] - first - second])


def _pair_names(arrays: Arrays) -> tuple[str, ...]:
    return tuple(" + ".join(names) for names in arrays["head"][arrays["pair"]])


def _table(
    arrays: Arrays, values: tuple[Floats, Floats], names: tuple[str, ...], bounds: Bounds, seed: int
) -> EffectTable:
    tokens = float(arrays["zero.lengths"].mean())
    columns = columns_of(*values, arrays["row"], arrays["phenomenon"], bounds, tokens)
    return compared(names, columns, seed=seed)
