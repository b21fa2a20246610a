"""Gradients of gates as proxies of what heads are worth, and their rank correlation with the effect of removing them.

Importance for the loss: E |dL / d gate| at gates of 1, L the loss of a sentence (Michel et al. 2019, section 4.1), the
same figure for every phenomenon. Importance for a phenomenon: E |dm / d gate|, m the margin of its pairs. First-order
estimate of the harm to a margin: E dm / d gate, with its sign (Molchanov et al. 2017 take its absolute value). The loss
has no such estimate: at a minimum of the loss over the weights its mean gradient is 0. Integrated gradients
(Sundararajan et al. 2017): the gradient on the way from gates of 0 to gates of 1, all heads at once; they add up to the
change of L or m. Attribution patching (Nanda 2023): the first-order estimate of what a head's output for the twin does
to the margin.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from headcount.data.batches import Sentences, collate
from headcount.heads.analysis import Analysis, Arrays, part
from headcount.heads.evaluation_set import select
from headcount.heads.interface import Heads, Layer, heads_named
from headcount.heads.likelihood import Progress, batch_log_probs, batches
from headcount.heads.statistics import LOSS, pair_scores, sentence_losses
from headcount.statistics.bootstrap import Floats

SPLITS = 100  # random halves
PATH = (np.arange(8) + 0.5) / 8  # gates on the way from 0 to 1
PROXIES = ("loss_importance", "margin_importance", "margin_first_order", "integrated", "attribution_patching")


@torch.enable_grad()
def gate_gradients(
    heads: Heads, source: Sentences, target: Sentences, progress: Progress | None = None, at: Tensor | None = None
) -> Floats:
    """Gradient of each sentence's loss in nats with respect to the gates, [sentence, head], at gates of 1 or at the
    gates `at` [head]."""
    gradients = np.zeros((len(target.lengths), len(heads)))
    at = heads.gates() if at is None else at
    for rows, batch in batches(heads, source, target, progress):
        # A gate of its own for each sentence: one backward pass gives the gradients of all.
        gates = at.repeat(len(rows), 1).requires_grad_()
        with heads.gated(gates):
            loss = -batch_log_probs(heads, batch).sum()
        gradients[rows] = torch.autograd.grad(loss, gates)[0].cpu().numpy()
    return gradients


def integrated_gradients(
    heads: Heads, source: Sentences, target: Sentences, progress: Progress | None = None
) -> Floats:
    """Integrated gradients of each sentence's loss in nats, [sentence, head]: of all heads they add up to the loss of
    the whole model less that without any head."""
    found = [gate_gradients(heads, source, target, progress, heads.gates() * gate) for gate in PATH.tolist()]
    return np.asarray(np.mean(found, axis=0))


@torch.enable_grad()
def patching_gradients(
    heads: Heads, source: Sentences, twin: Sentences, target: Sentences, progress: Progress | None = None
) -> Floats:
    """First-order estimate of the rise of log p(target | source) in nats where a head has its output for the twin,
    [sentence, head]; NaN for heads of the encoder where the twin has another length."""
    found = np.zeros((len(target.lengths), len(heads)))
    apart = source.lengths != twin.lengths

    def towards(layer: Layer, other: Tensor, gates: Tensor, output: Tensor) -> Tensor:
        length = min(output.shape[2], other.shape[2])
        there = torch.cat([other[:, :, :length], output[:, :, length:]], dim=2).detach()
        return output + gates[:, heads.columns(layer), None, None] * (there - output.detach())

    for rows, batch in batches(heads, source, target, progress):
        with torch.no_grad(), heads.recorded() as outputs:
            batch_log_probs(heads, collate(twin, target, rows, 0).to(heads.model.device))
        gates = torch.zeros_like(heads.gates()).repeat(len(rows), 1).requires_grad_()
        with heads.edited({layer: partial(towards, layer, other, gates) for layer, (other,) in outputs.items()}):
            found[rows] = torch.autograd.grad(batch_log_probs(heads, batch).sum(), gates)[0].cpu().numpy()
    encoder = [head.kind == "encoder" for head in heads.names]
    found[np.ix_(apart, encoder)] = np.nan
    return found


@part("importance", "gradient importance of each head", version=2)
def importance(analysis: Analysis, progress: Progress) -> Arrays:
    """Gradients on the validation sentences, in nats: loss [sentence, head], of each sentence's loss, and margin [pair,
    head], of log p(right) - log p(wrong), at gates of 1; integrated, integrated_margin, the same by
    `integrated_gradients`; patching [pair, head], of the margin by `patching_gradients`. Also head, the names, and row,
    phenomenon and grade of each pair."""
    heads, valid = analysis.heads, analysis.valid
    right, pairs = select(valid.target, valid.tested), select(valid.source, valid.tested)
    found = {}
    both = ("loss", "margin", gate_gradients), ("integrated", "integrated_margin", integrated_gradients)
    for loss, margin, gradients in both:
        found[loss] = gradients(heads, valid.source, valid.target, progress)
        found[margin] = gradients(heads, pairs, valid.contrast, progress) - found[loss][valid.tested]
        found[loss] = found[loss][valid.own]
    source, right, wrong = (select(each, valid.twinned) for each in (pairs, right, valid.contrast))
    of_twins = patching_gradients(heads, source, valid.twin, right, progress)
    of_twins -= patching_gradients(heads, source, valid.twin, wrong, progress)
    found["patching"] = np.full((len(valid.tested), len(heads)), np.nan)
    found["patching"][valid.twinned] = of_twins
    single = {name: values.astype(np.float32) for name, values in found.items()}
    return {**single, **valid.labels, "head": heads.labels}


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
    with the effect, or of attribution patching with that of patching. reliability [column]: of the ranks of the effect,
    see `reliability`. Both are NaN where all effects are equal.
    """

    heads: tuple[str, ...]
    columns: tuple[str, ...]
    effect: Floats
    proxies: dict[str, Floats]
    rank: Floats
    reliability: Floats


def guide(gradients: Arrays, ablated: Arrays, twins: Arrays | None = None) -> Guide:
    """How well gradients on validation sentences predict zero ablation on test sentences, from the arrays of
    `importance` and of `ablation`; attribution patching is compared with the harm of patching, from those of `twins`,
    and with nothing where they are not known."""
    unknown = np.full(gradients["loss"].shape[1], np.nan)

    def mean(array: str, inside: NDArray[np.bool_] | slice = slice(None)) -> Floats:
        known = array in gradients
        return np.asarray(gradients[array][inside].mean(axis=0, dtype=np.float64)) if known else unknown

    of_loss = abs(gradients["loss"]).mean(axis=0, dtype=np.float64)
    proxies = [(of_loss, unknown, unknown, -mean("integrated"), unknown)]
    names = sorted(set(ablated["phenomenon"].tolist()) & set(gradients["phenomenon"].tolist()))
    for name in names:
        inside = gradients["phenomenon"] == name
        own = abs(gradients["margin"][inside]).mean(axis=0, dtype=np.float64)
        signed = mean("margin", inside), mean("integrated_margin", inside), -mean("patching", inside)
        proxies.append((of_loss, own, *signed))
    harm = [harms(ablated, name) for name in (LOSS, *names)]
    effect, proxy = np.stack([each.mean(axis=1) for each in harm], axis=-1), np.stack(proxies, axis=-1)
    estimated = np.repeat(effect[None], len(PROXIES), axis=0)
    estimated[PROXIES.index("attribution_patching")] = patching_harm(twins, names, effect) if twins else np.nan
    rank = spearman(proxy, estimated)
    heads, known = tuple(gradients["head"].tolist()), np.array([reliability(each) for each in harm])
    return Guide(heads, (LOSS, *names), effect, dict(zip(PROXIES, proxy, strict=True)), rank, known)


def patching_harm(twins: Arrays, names: Sequence[str], like: Floats) -> Floats:
    """The margin that each head's output for the twin costs, [head, column], `names` behind the loss; NaN where it is
    not known."""
    found = np.full_like(like, np.nan)
    for column, name in enumerate(names, start=1):
        inside = twins["phenomenon"] == name
        if inside.any():
            found[:, column] = (twins["base"] - twins["patched"])[:, inside].mean(axis=1)
    return found


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
