"""Normalised patching effects (shares of the way to the twin) of heads and paths, by phenomenon.

A share is the sum of the moves of the log-odds over the sum of the whole distances to the twins: a ratio of means, so
that pairs that the model hardly distinguishes weigh little. 1: the head alone moves the log-odds to
those of the twin. Shares do not add up to 1: heads in a row carry the same cue one after the other, and heads side by
side may replace each other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headcount.statistics.max_t import DRAWS, EffectTable, Sample, compared

ROUNDING = 1e-6  # a smaller standard error is rounding


def move_shares(
    rows: Sequence[str], patched: NDArray, base: NDArray, twin: NDArray, phenomenon: NDArray, draws: int = DRAWS
) -> EffectTable:
    """Shares [row, phenomenon] with bootstrap intervals over pairs that hold for the whole table at once, see
    `compared`. They are NaN where the interval of the distance includes 0: the model does not distinguish these twins,
    so there is no way to be a share of. whole: the mean distance, log-odds of the twin less those of the sentence, in
    nats. rows: names of heads, layers or paths. patched [row, pair]; base, twin, phenomenon [pair]."""
    moves, ways = patched - base, twin - base
    columns, known = [], []
    for each in sorted(set(phenomenon.tolist())):
        pairs = np.flatnonzero(phenomenon == each)
        own = ways[pairs]
        distance = compared(["distance"], [Sample(each, own[None], pairs - pairs[0], 0, 1, 0)], draws)
        known.append(bool(distance.low[0, 0] > 0 or distance.high[0, 0] < 0))
        # The share is linear in these values (the delta method): a resample whose distance is near 0 has no share.
        share = moves[:, pairs].sum(axis=1, keepdims=True) / own.sum() if known[-1] else np.zeros((len(moves), 1))
        values = share + (moves[:, pairs] - share * own) / (own.mean() if known[-1] else np.inf)
        columns.append(Sample(each, values, pairs, float(own.mean()), 1, 0, ROUNDING if known[-1] else np.inf))
    table = compared(rows, columns, draws)
    estimate, low, high = (np.where(known, each, np.nan) for each in (table.estimate, table.low, table.high))
    return replace(table, estimate=estimate, low=low, high=high)


def twin_shares(arrays: Mapping[str, NDArray], rows: Literal["head", "layer"] = "head") -> EffectTable:
    """Shares of each head, or of each layer, from the arrays of `twins`."""
    patched = arrays["patched" if rows == "head" else "layers"]
    return move_shares(arrays[rows].tolist(), patched, arrays["base"], arrays["twin"], arrays["phenomenon"])


def largest_share(arrays: Mapping[str, NDArray], phenomenon: str) -> float:
    """The share of the head with the largest one of a phenomenon: chosen on every other pair and measured on the pairs
    between, both ways, so that the choice does not raise it. NaN where the log-odds of the twins
    of a half are not below those of the sentences."""
    inside = arrays["phenomenon"] == phenomenon
    moves, ways = (arrays["base"] - arrays["patched"])[:, inside], (arrays["base"] - arrays["twin"])[inside]
    halves = [(moves[:, half].sum(axis=1), ways[half].sum()) for half in (slice(0, None, 2), slice(1, None, 2))]
    shares = [
        moved[other.argmax()] / way if way > 0 else np.nan
        for (moved, way), (other, _) in zip(halves, reversed(halves), strict=True)
    ]
    return float(np.mean(shares))


def encoder_limit(arrays: Mapping[str, NDArray]) -> EffectTable:
    """The share of the twin's whole encoder output at the aligned tokens: the most that encoder heads can have. It is
    below 1 where twins differ in length."""
    patched = arrays["memory"][None]
    return move_shares(["encoder output"], patched, arrays["base"], arrays["twin"], arrays["phenomenon"])


def direct_paths(arrays: Mapping[str, NDArray]) -> EffectTable:
    """Shares of the direct paths of `paths`, those to the output included; all paths and phenomena are one family."""
    heads = [name for name in arrays["sender"].tolist() if name != "source"]
    ends = list(zip(arrays["path_sender"].tolist(), arrays["path_receiver"].tolist(), strict=True))
    ends += [(name, "output") for name in heads]
    moved = np.concatenate([arrays["path"], arrays["direct"][: len(heads)]])
    return move_shares([" > ".join(each) for each in ends], moved, arrays["base"], arrays["twin"], arrays["phenomenon"])
