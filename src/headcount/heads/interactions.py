"""Pairwise interactions of heads: the harm of removing two together beyond the sum of the harm of each alone.

I_ij = D_ij - D_i - D_j, D the harm of zero ablation. Two heads that do the same work cost little alone and much
together, so their interaction is harm; the reverse need not hold.
"""

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from headcount.heads.ablation import effects, gates_off
from headcount.heads.analysis import Analysis, Arrays, part
from headcount.heads.evaluation_set import evaluation_set
from headcount.heads.interface import Heads
from headcount.heads.likelihood import Progress
from headcount.heads.results import SENTENCE, Row
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


@part("pairs", "pairs of heads switched off together", settings=("pairs", "pair_sentences"))
def interactions(analysis: Analysis, progress: Progress) -> Arrays:
    """Log-probabilities with each head and each pair of heads off, on a part of the test sentences: the arrays of
    `effects` as zero.reference and so on; setting 0 is the whole model, then each head is off, then each pair. Also
    pair [pair, 2], the numbers of its heads in head, the names; and row, phenomenon and grade of each pair of
    translations."""
    heads, settings = analysis.heads, analysis.settings
    test = evaluation_set(analysis.run, analysis.test.rows, settings.pair_sentences)
    pairs = pairs_of(heads, settings.pairs, settings.seed)
    gates = gates_off(heads, [[], *([head] for head in range(len(heads))), *pairs.tolist()])
    found = {f"zero.{name}": value for name, value in effects(heads, test, gates, progress=progress).items()}
    return {**found, **test.labels, "pair": pairs, "head": heads.labels}


def interaction_table(arrays: Arrays, bounds: Bounds = NO_HARM, beyond: bool = True) -> EffectTable:
    """Interactions of all pairs of heads in loss and in the margins of phenomena: effects beyond the sum of both alone;
    rows are "cross1.1 + cross1.2". Without `beyond`, effects of each head alone, then of each pair."""
    heads, pair = arrays["head"], arrays["pair"]
    losses, scores = sentence_losses(arrays, "zero"), pair_scores(arrays, "zero", "margin")  # [setting, unit]
    names = [" + ".join(both) for both in heads[pair]]
    if beyond:
        losses, scores = (np.concatenate([each[:1], _beyond(each, pair, len(heads))]) for each in (losses, scores))
    else:
        names = [*heads.tolist(), *names]
    tokens = float(arrays["zero.lengths"].mean())
    columns = columns_of(losses, scores, arrays["row"], arrays["phenomenon"], bounds, tokens)
    return compared(tuple(names), columns)


def _beyond(values: Floats, pair: NDArray[np.int64], heads: int) -> Floats:
    """The whole model's values with the interaction of each pair of heads added, [pair, unit]."""
    change = values - values[0]
    return values[0] + change[1 + heads :] - change[1 + pair[:, 0]] - change[1 + pair[:, 1]]


def redundancies(arrays: Arrays, bounds: Bounds) -> list[Row]:
    """Pairs of which each head alone is free to cut and both together are not: alone their harm is below the bound of
    the column (non-inferior); together it is harm with a p-value of at most 5 %, not below the bound, and so is their
    interaction, the harm beyond the sum, which is the figure. The largest one comes first."""
    beyond, joint = (interaction_table(arrays, bounds, beyond) for beyond in (True, False))
    free = joint.harmless[arrays["pair"]].all(axis=1)
    harmful = (joint.verdict == "differs") & (joint.harm > 0) & ~joint.harmless
    chosen = (beyond.verdict == "differs") & (beyond.harm > 0) & harmful[len(arrays["head"]) :] & free
    found = []
    for pair, column in np.argwhere(chosen):
        low, high = sorted(float(beyond.worse[column] * end[pair, column]) for end in (beyond.low, beyond.high))
        names = beyond.rows[pair], "pairs.redundant", beyond.columns[column]
        found.append(Row(*names, float(beyond.harm[pair, column]), low, high, verdict="differs", unit=SENTENCE))
    return sorted(found, key=lambda row: -(row.low or 0))
