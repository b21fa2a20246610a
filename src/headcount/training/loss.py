"""The training objectives: label-smoothed cross-entropy, and R-Drop and SimCut on top of it, each fused with the
projection to the vocabulary."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from headcount.model.encoder_decoder import soft_capped

IGNORED = -1  # the label of a place without a token; as an index it is the last word, whose terms are multiplied by 0
GRAIN = 64  # tokens that a product has a multiple of, the last ones zeros: oneDNN compiles it for every new number
CHUNK = {"cpu": 512, "cuda": 16384}  # tokens whose logits exist at once; on a CPU, as many as stay in the cache


Divergence = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(logits, log of their sum of exponentials, probability) of two passes, one after the other, [2 * token, vocab] -> the
divergence of the passes, summed over tokens; and `probability` with the gradient of that by the logits added."""


class Loss(Protocol):
    """A training objective, as a training step calls it."""

    passes: int  # times that a batch goes through the model, each with other dropout
    p_cut: float  # probability that a pass after the first lacks the embedding of a token

    def at(self, step: int) -> "Loss":
        """The objective of the optimizer step after `step` others."""
        ...

    def __call__(
        self, hidden: Tensor, weight: Tensor, labels: Tensor, cap: float | None = None
    ) -> tuple[Tensor, Tensor]:
        """(loss, negative log-likelihood) of logits hidden @ weight.T, each summed over tokens, in nats; the mean over
        the passes that have a cross-entropy. The loss has a gradient, the log-likelihood has none.
        cap: of the logits, see `soft_capped`.

        hidden [pass * token, d_model], one whole pass after another; weight [vocab, d_model]; labels [pass * token]. A
        token with the label IGNORED counts for nothing: its hidden must be zeros.
        """
        ...


class LabelSmoothing:
    """Cross-entropy against 1 - smoothing on the right token, the rest spread evenly: Szegedy et al. 2016, section 7.

    Raises ValueError for a smoothing outside [0, 1).
    """

    passes = 1
    labelled = 1  # passes with a cross-entropy, the first ones
    p_cut = 0.0
    divergence: Divergence | None = None

    def __init__(self, *, smoothing: float) -> None:
        if not 0 <= smoothing < 1:
            raise ValueError(f"loss.smoothing={smoothing}: from 0 (off) up to, not including, 1; 0.1 is usual")
        self.smoothing = smoothing
        self._scratch = _Scratch()

    def at(self, step: int) -> "LabelSmoothing":
        """The objective of the optimizer step after `step` others: always the same."""
        return self

    def __call__(
        self,
        hidden: Float[Tensor, "passes_and_token d_model"],
        weight: Float[Tensor, "vocab d_model"],
        labels: Int[Tensor, "passes_and_token"],
        cap: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        objective = _Objective(self.smoothing, len(hidden) // self.passes * self.labelled, self.divergence, cap)
        loss, likelihood = _ProjectedCrossEntropy.apply(hidden, weight, labels, objective, self._scratch)
        return loss / self.labelled, likelihood.detach() / self.labelled


class TwoPasses(LabelSmoothing):
    """Label smoothing and a divergence of two passes; before optimizer step `start`, label smoothing alone.

    Raises ValueError for a smoothing outside [0, 1), an alpha that is not positive or a start below 0.
    """

    passes = 2

    def __init__(self, *, alpha: float, smoothing: float, start: int) -> None:
        if alpha <= 0:
            raise ValueError(f"loss.alpha={alpha}: must be more than 0, such as 5; for none, loss.kind=label_smoothing")
        if start < 0:
            raise ValueError(f"loss.start={start}: must be 0 (at once) or a number of optimizer steps")
        super().__init__(smoothing=smoothing)
        self.start = start
        self._before = LabelSmoothing(smoothing=smoothing)

    def at(self, step: int) -> "LabelSmoothing":
        """The objective of the optimizer step after `step` others."""
        return self if step >= self.start else self._before


class RDrop(TwoPasses):
    """R-Drop: two passes with different dropout, and the divergence of their predictions; Liang et al. 2021, "R-Drop:
    regularized dropout for neural networks", equation 4, halved so that a step is as large as one of label smoothing.

    (loss_1 + loss_2) / 2 + alpha / 4 (KL(p_1 || p_2) + KL(p_2 || p_1))

    alpha: weight of the divergence; the paper takes 5 for small translation data. A step costs two of the plain loss.
    start: optimizer steps of label smoothing alone before it. Raises ValueError, see `TwoPasses`.
    """

    labelled = 2

    def __init__(self, *, alpha: float, smoothing: float, start: int) -> None:
        super().__init__(alpha=alpha, smoothing=smoothing, start=start)
        self.divergence = partial(_both_ways, share=alpha / 2)


class SimCut(TwoPasses):
    """SimCut: a second pass lacks the embeddings of some tokens, and the prediction of the first is pulled towards its
    prediction and the other way round; Gao et al. 2022, "Bi-SimCut: a simple strategy for boosting neural machine
    translation".

    loss_1 + alpha KL(p_1 || p_2), with the gradient of both

    alpha: weight of the divergence, 3 in the paper. p_cut: probability that the second pass lacks the embedding of a
    token, 0.05 there. A step costs two of the plain loss. start: optimizer steps of label smoothing alone before it.
    Raises ValueError for a p_cut outside (0, 1), and see `TwoPasses`.
    """

    def __init__(self, *, alpha: float, p_cut: float, smoothing: float, start: int) -> None:
        super().__init__(alpha=alpha, smoothing=smoothing, start=start)
        if not 0 < p_cut < 1:
            raise ValueError(f"loss.p_cut={p_cut}: must be between 0 and 1, such as 0.05")
        self.p_cut = p_cut
        self.divergence = partial(_from_first, alpha=alpha)


@dataclass(frozen=True)
class _Objective:
    """A loss of projected tokens. labelled: the first tokens, which have a cross-entropy; cap: of the logits."""

    smoothing: float
    labelled: int
    divergence: Divergence | None
    cap: float | None


class _Scratch:
    """Memory for the logits of a chunk and their softmax, kept from step to step: to map and clear new pages for them
    would take longer than the products."""

    def __init__(self) -> None:
        self._tensors: dict[torch.dtype, Tensor] = {}

    def pair(self, rows: int, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Two tensors [rows, vocab] without defined values, in the type of the weights [vocab, d_model]."""
        if weight.device.type != "cpu":  # an accelerator's allocator keeps its memory anyway
            return weight.new_empty(rows, len(weight)), weight.new_empty(rows, len(weight))
        kept = self._tensors.get(weight.dtype)
        if kept is None or kept.shape[1] < rows or kept.shape[2] != len(weight):
            kept = self._tensors[weight.dtype] = weight.new_empty(2, rows, len(weight))
        return kept[0, :rows], kept[1, :rows]


class _ProjectedCrossEntropy(torch.autograd.Function):
    """Fused projection and cross-entropy: the gradient, known in closed form, is computed along with the loss, a chunk
    of tokens at a time. The logits of a whole batch, the largest tensor by far, never exist.

    With p = softmax(W h), right token y, smoothing s and V words:

        loss = -(1 - s) log p_y - s/V sum_v log p_v          d loss / d logits = p - s/V - (1 - s) onehot(y)

    The term s/V is the same for every word, so its share of the gradients is a sum over the rows of W or over the
    tokens, without another pass over the logits. p_y - 1 + s is computed as s minus the sum of all other p, which is
    exact where p_y is near 1 - s; p_y rounded to bf16 would not be.

    With a cap c, logits are c tanh(W h / c), of which each has the slope 1 - (logit / c)^2: s/V is in that product.

    With a divergence, the second half of the tokens repeats the first, and the divergence of both is added. In mixed
    precision, logits and p have the lower precision, p_y - 1 + s and sums float32; with a divergence, p is float32 too.
    Without gradients, as in validation, all have the precision of the weights.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, objective: _Objective, scratch: _Scratch
    ) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        needs_gradient = any(ctx.needs_input_grad)
        lower = needs_gradient and torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if lower else weight.dtype
        with torch.autocast(device, enabled=False):
            inputs = hidden.to(dtype), weight.to(dtype), labels
            loss, likelihood, *gradients = _projected_losses(*inputs, objective, scratch, needs_gradient)
        if needs_gradient:
            ctx.save_for_backward(*(g.to(x.dtype) for g, x in zip(gradients, (hidden, weight), strict=True)))
        return loss, likelihood

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        hidden_gradient, weight_gradient = ctx.saved_tensors
        return hidden_gradient * gradient, weight_gradient * gradient, None, None, None


def _projected_losses(
    hidden: Tensor, weight: Tensor, labels: Tensor, objective: _Objective, scratch: _Scratch, with_gradients: bool
) -> tuple[Tensor, ...]:
    """Loss and likelihood, and the gradients of the loss by hidden and weight."""
    smoothing, cap, divergence = objective.smoothing, objective.cap, objective.divergence
    exact = torch.promote_types(hidden.dtype, torch.float32)
    tiny = torch.finfo(exact).tiny  # a token less likely than that (e^-87 in float32) counts as just so likely
    spread = smoothing / len(weight)
    loss = torch.zeros((), dtype=exact, device=hidden.device)
    likelihood = torch.zeros_like(loss)
    hidden_gradient, weight_gradient = torch.empty_like(hidden), torch.zeros_like(weight, dtype=exact)
    all_words = weight.sum(dim=0, dtype=exact)
    for part in _parts(hidden, 1 if divergence is None else 2):
        rows = hidden[part]
        count = len(rows)
        own = slice(count * objective.labelled // len(hidden))  # those with a cross-entropy
        counted = labels[part] != IGNORED
        right = torch.arange(count, device=rows.device), labels[part]
        rows = F.pad(rows, (0, 0, 0, -count % GRAIN))
        logits, p = scratch.pair(len(rows), weight)
        torch.mm(rows, weight.T, out=logits)
        by_logits, logits, p = p, logits[:count], p[:count]
        if cap is not None:
            logits = soft_capped(logits, cap)
        if divergence is None:
            torch.softmax(logits, dim=1, out=p)
        else:
            logits = logits.to(exact)  # the difference of two passes is small
            p = logits.softmax(dim=1)
        log_right = p[right].to(exact).clamp(min=tiny).log() * counted
        likelihood -= log_right[own].sum()
        log_total = logits[right] * counted - log_right
        if smoothing:
            total = (rows[own].to(exact) @ all_words).sum() if cap is None else logits[own].sum(dtype=exact)
            loss += smoothing * log_total[own].sum() - spread * total
        if divergence is not None:
            difference, p = divergence(logits, log_total[:, None], p)
            loss += difference
            p[right[0][own], right[1][own]] -= 1 - smoothing
        elif with_gradients:
            p[right] = p.new_zeros(())  # a number would be copied to a GPU
            p[right] = (smoothing - _row_sums(p, exact)).to(p.dtype)
        if with_gradients:
            if cap is not None:
                p[own] -= spread
                p *= 1 - (logits / cap).square()
            if divergence is not None:
                by_logits[:count] = p
            by_logits[count:] = 0
            hidden_gradient[part] = (by_logits @ weight)[:count]
            weight_gradient += by_logits.T @ rows
    loss += (1 - smoothing) * likelihood
    if with_gradients and cap is None:
        labelled = slice(objective.labelled)
        hidden_gradient[labelled] -= spread * all_words
        weight_gradient -= spread * hidden[labelled].sum(dim=0, dtype=exact)
    return loss, likelihood, hidden_gradient, weight_gradient


def _row_sums(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The sum of each row. In eight parts, since torch rounds a sum to the type of `x`; asked for another type, it
    copies all of `x` first on a CPU."""
    return torch.stack([part.sum(dim=1) for part in x.chunk(8, dim=1)]).sum(dim=0, dtype=dtype)


def _parts(hidden: Tensor, passes: int) -> list[Any]:
    """What to take of the tokens at once: slices; of two passes the same tokens of both, one pass after the other."""
    tokens, size = len(hidden) // passes, max(1, CHUNK.get(hidden.device.type, 1024) // passes)
    starts = range(0, tokens, size)
    if passes == 1:
        return [slice(start, start + size) for start in starts]
    each = torch.arange(passes * tokens, device=hidden.device).view(passes, tokens)
    return [each[:, start : start + size].flatten() for start in starts]


def _both_ways(logits: Tensor, log_total: Tensor, probability: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """A `Divergence`: `share` of KL(p || q) + KL(q || p), where p is the first half of `probability` and q the second.

    With d = log p - log q the sum is sum_v (p - q) d, and its gradient by the logits of p

        p (d - KL(p || q)) + p - q                           and by those of q  q (-d - KL(q || p)) + q - p.
    """
    d, p, q = _log_ratio(logits, log_total, probability)
    kl_p, kl_q = (p * d).sum(dim=1, keepdim=True), -(q * d).sum(dim=1, keepdim=True)
    by_p = p * (d - (kl_p - 1 - 1 / share)) - q
    by_q = q * (d + (kl_q - 1 - 1 / share)).neg_() - p
    return share * (kl_p + kl_q).sum(), torch.cat([by_p, by_q]).mul_(share)


def _from_first(logits: Tensor, log_total: Tensor, probability: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """A `Divergence`: alpha KL(p || q), where q has no cross-entropy, so that its rows are the gradient of this alone.

    With d = log p - log q, the gradient of KL(p || q) is p (d - KL(p || q)) by the logits of p and q - p by those of q.
    """
    d, p, q = _log_ratio(logits, log_total, probability)
    kl = (p * d).sum(dim=1, keepdim=True)
    return alpha * kl.sum(), torch.cat([p * (d - (kl - 1 / alpha)), q - p]).mul_(alpha)


def _log_ratio(logits: Tensor, log_total: Tensor, probability: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log p - log q, p and q of the first and the second half of `probability`."""
    (logits_p, logits_q), (total_p, total_q), (p, q) = (each.chunk(2) for each in (logits, log_total, probability))
    return (logits_p - logits_q).sub_(total_p - total_q), p, q
