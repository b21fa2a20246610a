"""Shapley values of heads by truncated Monte Carlo (Ghorbani and Zou 2019; for attention heads: Held and Yang 2023).

The value of a head is the mean fall of the loss when it joins the heads before it, over random orders of all heads.
Unlike an ablation it counts what a head is worth when others are missing; the values of all heads add up to the loss
without any head minus the loss of the whole model, but for what truncation leaves out.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from headcount.heads.analysis import Analysis, Arrays, part
from headcount.heads.evaluation_set import evaluation_set
from headcount.heads.likelihood import Progress, token_log_probs
from headcount.heads.results import SENTENCE, Row
from headcount.heads.statistics import LOSS
from headcount.statistics.bootstrap import Floats
from headcount.statistics.max_t import ERROR

AT_ONCE = 6  # heads that join before truncation is decided anew
TOLERANCE = 0.01  # of the distance from no head to all; what remains is taken as 0

Losses = Callable[[NDArray[np.bool_]], Floats]
"""Settings [setting, head], True where a head is on, to the loss of each [setting]."""


def orders(heads: int, permutations: int, seed: int) -> NDArray[np.int64]:
    """Orders [permutation, head], each random one followed by its reverse (antithetic sampling, Mitchell et al.
    2022)."""
    generator = np.random.default_rng(seed)
    drawn = [generator.permutation(heads) for _ in range((permutations + 1) // 2)]
    return np.concatenate([np.stack([order, order[::-1]]) for order in drawn])[:permutations]


def marginals(losses: Losses, order: NDArray[np.int64], tolerance: float = TOLERANCE) -> tuple[Floats, float, float]:
    """The fall of the loss when each head joins, [permutation, head], and the losses with no head and with all.

    An order ends, and the rest of its heads get 0, where the loss is within `tolerance` of that of the whole model, as
    a share of the distance from no head to all.
    """
    permutations, heads = order.shape
    empty, full = losses(np.array([[False] * heads, [True] * heads])).tolist()
    joined = np.argsort(order, axis=1)  # [permutation, head]: the place of each head
    found = np.zeros((permutations, heads))
    active, before = np.arange(permutations), np.full(permutations, empty)
    for start in range(0, heads, AT_ONCE):
        places = np.arange(start, min(start + AT_ONCE, heads))
        on = joined[active, None, :] <= places[:, None]  # [active, place, head]
        after = losses(on.reshape(-1, heads)).reshape(len(active), -1)
        falls = -np.diff(np.concatenate([before[active, None], after], axis=1), axis=1)
        found[active[:, None], order[active][:, places]] = falls
        before[active] = after[:, -1]
        active = active[abs(after[:, -1] - full) > tolerance * abs(empty - full)]
        if not len(active):
            break
    return found, empty, full


@part("shapley", "Shapley values of the heads", settings=("permutations", "shapley_sentences"))
def shapley(analysis: Analysis, progress: Progress) -> Arrays:
    """Marginal contributions to loss in nats a sentence on validation sentences, see `marginals`: marginal
    [permutation, head], empty and full; also head, the names."""
    heads, settings = analysis.heads, analysis.settings
    valid = evaluation_set(analysis.run, analysis.own_valid.rows, settings.shapley_sentences)

    def losses(on: NDArray[np.bool_]) -> Floats:
        gates = torch.from_numpy(on).to(heads.gates())
        found = -token_log_probs(heads, valid.source, valid.target, gates).sums.mean(axis=1)
        progress(len(on))
        return np.asarray(found, dtype=np.float64)

    marginal, empty, full = marginals(losses, orders(len(heads), settings.permutations, settings.seed))
    return {"marginal": marginal, "empty": np.array(empty), "full": np.array(full), "head": heads.labels}


def values(arrays: Arrays) -> list[Row]:
    """Shapley values of all heads in nats a sentence, from the arrays of `shapley`, with 95 % intervals over orders of
    the heads; the sentences are fixed. An order and its reverse are one observation."""
    marginal = arrays["marginal"]
    whole = marginal[: len(marginal) // 2 * 2].reshape(-1, 2, marginal.shape[1]).mean(axis=1)
    estimate, pairs = whole.mean(axis=0), len(whole)
    error = whole.std(axis=0, ddof=1) / np.sqrt(pairs) if pairs > 1 else np.full(len(estimate), np.inf)
    half = float(stats.t.isf(ERROR / 2, max(pairs - 1, 1))) * error
    ends = zip(arrays["head"].tolist(), *np.stack([estimate, estimate - half, estimate + half]).tolist(), strict=True)
    return [Row(head, "shapley", LOSS, value, low, high, unit=SENTENCE) for head, value, low, high in ends]
