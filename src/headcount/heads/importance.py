"""Gradient importance of heads, and its rank correlation with the effect of removing them.

Importance is E |dL / d gate| at gates of 1 (Michel et al. 2019, section 4.1), L the loss of a sentence. The
first-order estimate of the effect of a gate of 0 is the negative mean gradient, with its sign; Molchanov et al. 2017
take its absolute value.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from headcount.data.batches import Sentences, collate
from headcount.data.plan import in_order_of_length
from headcount.heads.analysis import Analysis, Arrays, Part
from headcount.heads.evaluation_set import select
from headcount.heads.interface import Heads, heads_named
from headcount.heads.likelihood import ROW_TOKENS, Progress, log_probs
from headcount.heads.statistics import LOSS, pair_scores, sentence_losses
from headcount.report.statistics.bootstrap import Floats, resamples
from headcount.report.statistics.max_t import DRAWS, ERROR


@torch.enable_grad()
def gate_gradients(
    heads: Heads, source: Sentences, target: Sentences, progress: Progress | None = None, at: torch.Tensor | None = None
) -> Floats:
    """Gradient of each sentence's loss in nats with respect to the gates, [sentence, head], at gates of 1 or at the
    gates `at` [head]."""
    gradients = np.zeros((len(target.lengths), len(heads)))
    at = heads.gates() if at is None else at
    for rows in in_order_of_length(source.lengths, target.lengths, ROW_TOKENS) if len(gradients) else ():
        batch = collate(source, target, rows, 0).to(heads.model.device)
        # A gate of its own for each sentence: one backward pass gives the gradients of all.
        gates = at.repeat(len(rows), 1).requires_grad_()
        with heads.gated(gates):
            hidden = heads.model(batch.source, batch.source_mask, batch.target_in)
            loss = -log_probs(heads, hidden, batch.target_out).sum()
        gradients[rows] = torch.autograd.grad(loss, gates)[0].cpu().numpy()
        if progress is not None:
            progress(len(rows))
    return gradients


def importance(analysis: Analysis, progress: Progress) -> Arrays:
    """Gradients at gates of 1 on the validation sentences: loss [sentence, head], of each sentence's loss, and margin
    [pair, head], of log p(right) - log p(wrong), in nats; also head, the names, and row, phenomenon and grade of each
    pair."""
    heads, valid = analysis.heads, analysis.valid
    loss = gate_gradients(heads, valid.source, valid.target, progress)
    wrong = gate_gradients(heads, select(valid.source, valid.tested), valid.contrast, progress)
    arrays = {"loss": loss.astype(np.float32), "margin": (wrong - loss[valid.tested]).astype(np.float32)}
    return {**arrays, **valid.labels, "head": heads.labels}


IMPORTANCE = Part(
    "importance",
    "gradient importance of each head",
    importance,
    steps=lambda analysis: len(analysis.valid) + len(analysis.valid.tested),
)


def normalised_by_layer(importances: Floats, names: NDArray) -> Floats:
    """Importances [head] over the l2 norm of their layer (Michel et al. 2019, section 4.1; after Molchanov et al.)."""
    layers = np.array([str(head.place) for head in heads_named(names)])
    norms = np.array([np.sqrt((importances[layers == layer] ** 2).sum()) for layer in layers])
    return np.divide(importances, norms, out=np.zeros_like(norms), where=norms > 0)


@dataclass(frozen=True)
class Guide:
    """Proxies beside the true effect of removing each head, and the rank correlation (Spearman) of both.

    columns: loss, then phenomena. effect, importance, first_order [head, column]: harm in nats a sentence or of margin,
    positive is worse; E |gradient|; its first-order estimate. rank, low, high [proxy, column]: the correlation over
    heads of importance and of the first-order estimate with the effect, and its bootstrap interval over sentences, not
    simultaneous; the heads are fixed; NaN where all effects are equal.
    """

    heads: tuple[str, ...]
    columns: tuple[str, ...]
    effect: Floats
    importance: Floats
    first_order: Floats
    rank: Floats
    low: Floats
    high: Floats


PROXIES = ("importance", "first_order")


def guide(gradients: Arrays, ablated: Arrays, draws: int = DRAWS, seed: int = 0) -> Guide:
    """How well gradients on validation sentences predict zero ablation on test sentences, from the arrays of
    `importance` and of `ablation`."""
    losses, scores = sentence_losses(ablated, "zero"), pair_scores(ablated, "zero", "margin")
    tested, shown = _weights(losses.shape[1], draws, seed), _weights(len(gradients["loss"]), draws, seed + 1)
    effects, proxies = [_means(tested, (losses[1:] - losses[0]).T)], [_both(shown, -gradients["loss"])]
    names = sorted(set(ablated["phenomenon"].tolist()) & set(gradients["phenomenon"].tolist()))
    for name in names:
        inside, known = ablated["phenomenon"] == name, gradients["phenomenon"] == name
        effects.append(_means(tested[:, ablated["row"][inside]], (scores[0] - scores[1:])[:, inside].T))
        proxies.append(_both(shown[:, gradients["row"][known]], gradients["margin"][known]))
    effect, proxy = np.stack(effects, axis=-1), np.stack(proxies, axis=-1)  # [(proxy,) draw, head, column]
    ranks = np.stack([spearman(each, effect) for each in proxy], axis=1)  # [draw, proxy, column]
    low, high = np.full((2, *ranks.shape[1:]), np.nan)
    ranked = ~np.isnan(ranks[1:]).all(axis=0)
    if ranked.any():
        low[ranked], high[ranked] = np.nanquantile(ranks[1:][:, ranked], [ERROR / 2, 1 - ERROR / 2], axis=0)
    heads = tuple(gradients["head"].tolist())
    return Guide(heads, (LOSS, *names), effect[0], proxy[0, 0], proxy[1, 0], ranks[0], low, high)


def _weights(sentences: int, draws: int, seed: int) -> Floats:
    """Weights [1 + draw, sentence]: of all sentences once, then of resamples."""
    return np.concatenate([np.ones((1, sentences)), resamples(sentences, draws, seed)])


def _means(weights: Floats, values: NDArray) -> Floats:
    """Weighted means [draw, head] of values [unit, head]."""
    return weights @ values.astype(np.float64) / np.maximum(weights.sum(axis=1, keepdims=True), 1)


def _both(weights: Floats, estimates: NDArray) -> Floats:
    """Means [proxy, draw, head] of |estimate| and of the estimates themselves."""
    return np.stack([_means(weights, abs(estimates)), _means(weights, estimates)])


def spearman(first: Floats, second: Floats) -> Floats:
    """Spearman's rank correlation over heads, [draw, column], of arrays [draw, head, column]; NaN for constants."""
    ranks = [stats.rankdata(values, axis=1) for values in (first, second)]
    x, y = (each - each.mean(axis=1, keepdims=True) for each in ranks)
    norms = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    return np.divide((x * y).sum(axis=1), norms, out=np.full_like(norms, np.nan), where=norms > 0)
