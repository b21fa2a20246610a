"""Gradients of gates as proxies of what heads are worth, and their rank correlation with the effect of removing them.

Three proxies, at gates of 1. Importance for the loss: E |dL / d gate|, L the loss of a sentence (Michel et al. 2019,
section 4.1), the same figure for every phenomenon. Importance for a phenomenon: E |dm / d gate|, m the margin of its
pairs. First-order estimate of the harm to a margin: E dm / d gate, with its sign (Molchanov et al. 2017 take its
absolute value). The loss has no such estimate: at a minimum of the loss over the weights its mean gradient is 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from headcount.data.batches import Sentences, collate
from headcount.data.batching import in_order_of_length
from headcount.heads.analysis import Analysis, Arrays, Part
from headcount.heads.evaluation_set import select
from headcount.heads.interface import Heads, heads_named
from headcount.heads.likelihood import ROW_TOKENS, Progress, log_probs
from headcount.heads.statistics import LOSS, pair_scores, sentence_losses
from headcount.statistics.bootstrap import Floats

SPLITS = 100  # random halves


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
    """Proxies beside the true effect of removing each head, and the rank correlation (Spearman) of both over heads.

    columns: loss, then phenomena. effect [head, column]: harm in nats a sentence or of margin, positive is worse.
    proxies: of `PROXIES`, [head, column]; those of margins are NaN for the loss. rank [proxy, column]: the correlation
    with the effect. reliability [column]: of the ranks of the effect, see `reliability`. Both are NaN where all effects
    are equal.
    """

    heads: tuple[str, ...]
    columns: tuple[str, ...]
    effect: Floats
    proxies: dict[str, Floats]
    rank: Floats
    reliability: Floats


PROXIES = ("loss_importance", "margin_importance", "margin_first_order")


def guide(gradients: Arrays, ablated: Arrays) -> Guide:
    """How well gradients on validation sentences predict zero ablation on test sentences, from the arrays of
    `importance` and of `ablation`."""
    of_loss = abs(gradients["loss"]).mean(axis=0, dtype=np.float64)
    unknown = np.full(len(of_loss), np.nan)
    proxies = [(of_loss, unknown, unknown)]
    names = sorted(set(ablated["phenomenon"].tolist()) & set(gradients["phenomenon"].tolist()))
    for name in names:
        own = gradients["margin"][gradients["phenomenon"] == name].astype(np.float64)
        proxies.append((of_loss, abs(own).mean(axis=0), own.mean(axis=0)))
    harm = [harms(ablated, name) for name in (LOSS, *names)]
    effect, proxy = np.stack([each.mean(axis=1) for each in harm], axis=-1), np.stack(proxies, axis=-1)
    rank = spearman(proxy, np.broadcast_to(effect, proxy.shape))
    heads, known = tuple(gradients["head"].tolist()), np.array([reliability(each) for each in harm])
    return Guide(heads, (LOSS, *names), effect, dict(zip(PROXIES, proxy, strict=True)), rank, known)


def harms(ablated: Mapping[str, NDArray], column: str) -> Floats:
    """The harm of removing each head to the loss of each sentence, or to the margin of each pair of a phenomenon, in
    nats, [head, unit]; from the arrays of `ablation`."""
    if column == LOSS:
        losses = sentence_losses(ablated, "zero")
        return losses[1:] - losses[0]
    scores = pair_scores(ablated, "zero", "margin")[:, ablated["phenomenon"] == column]
    return scores[0] - scores[1:]


def reliability(harm: Floats, seed: int = 0) -> float:
    """The reliability of the ranks of mean harms over units [head, unit]: their rank correlation over two halves of the
    units, the mean over random halves, corrected to all units (Spearman 1910; Brown 1910), 0 or more. A proxy without
    any error of its own has a rank correlation of about its square root. NaN where it is not known."""
    sides = np.tile(np.arange(harm.shape[1]) % 2, (SPLITS, 1))
    first = np.random.default_rng(seed).permuted(sides, axis=1)
    halves = [(weights @ harm.T)[:, :, None] for weights in (first, 1 - first)]
    between = float(np.maximum(spearman(*halves).mean(), 0))
    return 2 * between / (1 + between)


def spearman(first: Floats, second: Floats) -> Floats:
    """Spearman's rank correlation over heads, [draw, column], of arrays [draw, head, column]; NaN for constants, and
    where a value is NaN."""
    ranks = [stats.rankdata(values, axis=1) for values in (first, second)]
    x, y = (each - each.mean(axis=1, keepdims=True) for each in ranks)
    norms = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    return np.divide((x * y).sum(axis=1), norms, out=np.full_like(norms, np.nan), where=norms > 0)
