"""The training objectives: label-smoothed cross-entropy, and R-Drop on top of it, each fused with the projection to the
vocabulary."""

from typing import Any, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

CHUNK = {"cpu": 512, "cuda": 16384}  # tokens whose logits exist at once; on a CPU, as many as stay in the cache


class Loss(Protocol):
    """A training objective, as a training step calls it."""

    passes: int  # times that a batch goes through the model, each with other dropout

    def __call__(self, hidden: Tensor, weight: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """(loss, negative log-likelihood) of logits hidden @ weight.T, each summed over tokens and the mean over
        passes, in nats; only the first has a gradient.

        hidden [pass * token, d_model], one whole pass after another; weight [vocab, d_model]; labels [pass * token].
        """
        ...


class LabelSmoothing:
    """Cross-entropy against 1 - smoothing on the right token, the rest spread evenly: Szegedy et al. 2016, section 7.

    Raises ValueError for a smoothing outside [0, 1).
    """

    passes = 1
    alpha: float | None = None  # weight of the divergence of two passes

    def __init__(self, *, smoothing: float) -> None:
        if not 0 <= smoothing < 1:
            raise ValueError(f"loss.smoothing={smoothing}: from 0 (off) up to, not including, 1; 0.1 is usual")
        self.smoothing = smoothing

    def __call__(
        self,
        hidden: Float[Tensor, "passes_and_token d_model"],
        weight: Float[Tensor, "vocab d_model"],
        labels: Int[Tensor, "passes_and_token"],
    ) -> tuple[Tensor, Tensor]:
        loss, likelihood = _ProjectedCrossEntropy.apply(hidden, weight, labels, self.smoothing, self.alpha)
        return loss / self.passes, likelihood.detach() / self.passes


class RDrop(LabelSmoothing):
    """R-Drop: two passes with different dropout, and the divergence of their predictions; Liang et al. 2021, "R-Drop:
    regularized dropout for neural networks", equation 4, halved so that a step is as large as one of label smoothing.

    (loss_1 + loss_2) / 2 + alpha / 4 (KL(p_1 || p_2) + KL(p_2 || p_1))

    alpha: weight of the divergence; the paper takes 5 for small translation data. A step costs two of the plain loss.
    Raises ValueError for a smoothing outside [0, 1) or an alpha that is not positive.
    """

    passes = 2

    def __init__(self, *, alpha: float, smoothing: float) -> None:
        if alpha <= 0:
            raise ValueError(f"loss.alpha={alpha}: must be more than 0, such as 5; for none, loss=label_smoothing")
        super().__init__(smoothing=smoothing)
        self.alpha = alpha


class _ProjectedCrossEntropy(torch.autograd.Function):
    """Fused projection and cross-entropy: the gradient, known in closed form, is computed along with the loss, a chunk
    of tokens at a time. The logits of a whole batch, the largest tensor by far, never exist.

    With p = softmax(W h), right token y, smoothing s and V words:

        loss = -(1 - s) log p_y - s/V sum_v log p_v          d loss / d logits = p - s/V - (1 - s) onehot(y)

    The term s/V is the same for every word, so its share of the gradients is a sum over the rows of W or over the
    tokens, without another pass over the logits. p_y - 1 + s is computed as s minus the sum of all other p, which is
    exact where p_y is near 1 - s; p_y rounded to bf16 would not be.

    With alpha, the second half of the tokens repeats the first, and alpha / 2 of the divergence of both is added: see
    `_difference`. In mixed precision, logits and p have the lower precision, p_y - 1 + s and sums float32; with alpha,
    p is float32 too. Without gradients, as in validation, all have the precision of the weights.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float, alpha: float | None
    ) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        needs_gradient = any(ctx.needs_input_grad)
        lower = needs_gradient and torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if lower else weight.dtype
        with torch.autocast(device, enabled=False):
            loss, likelihood, *gradients = _losses(
                hidden.to(dtype), weight.to(dtype), labels, smoothing, alpha, CHUNK.get(device, 1024), needs_gradient
            )
        if needs_gradient:
            ctx.save_for_backward(*(g.to(x.dtype) for g, x in zip(gradients, (hidden, weight), strict=True)))
        return loss, likelihood

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor, Tensor, None, None, None]:
        hidden_gradient, weight_gradient = ctx.saved_tensors
        return hidden_gradient * gradient, weight_gradient * gradient, None, None, None


def _losses(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    smoothing: float,
    alpha: float | None,
    chunk: int,
    with_gradients: bool,
) -> tuple[Tensor, ...]:
    """Loss and likelihood, and the gradients of the loss by hidden and weight."""
    exact = torch.promote_types(hidden.dtype, torch.float32)
    tiny = torch.finfo(exact).tiny  # a token less likely than that (e^-87 in float32) counts as just so likely
    spread = smoothing / len(weight)
    loss = torch.zeros((), dtype=exact, device=hidden.device)
    likelihood = torch.zeros_like(loss)
    hidden_gradient, weight_gradient = torch.empty_like(hidden), torch.zeros_like(weight, dtype=exact)
    all_words = weight.sum(dim=0, dtype=exact)
    for part in _parts(hidden, 1 if alpha is None else 2, chunk):
        rows = hidden[part]
        right = torch.arange(len(rows), device=rows.device), labels[part]
        logits = rows @ weight.T
        if alpha is not None:
            logits = logits.to(exact)  # the difference of two passes is small
        p = logits.softmax(dim=1)
        log_right = p[right].to(exact).clamp(min=tiny).log()
        likelihood -= log_right.sum()
        log_total = logits[right] - log_right
        if smoothing:
            loss += smoothing * log_total.sum() - spread * (rows.to(exact) @ all_words).sum()
        if alpha is not None:
            difference, p = _difference(logits, log_total[:, None], p, alpha / 2)
            loss += difference
            p[right] -= 1 - smoothing
        elif with_gradients:
            p[right] = 0
            p[right] = (smoothing - _row_sums(p, exact)).to(p.dtype)
        if with_gradients:
            by_logits = p.to(weight.dtype)
            hidden_gradient[part] = by_logits @ weight
            weight_gradient += by_logits.T @ rows
    loss += (1 - smoothing) * likelihood
    if with_gradients:
        hidden_gradient -= spread * all_words
        weight_gradient -= spread * hidden.sum(dim=0, dtype=exact)
    return loss, likelihood, hidden_gradient, weight_gradient


def _row_sums(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The sum of each row. In eight parts, since torch rounds a sum to the type of `x`; asked for another type, it
    copies all of `x` first on a CPU."""
    return torch.stack([part.sum(dim=1) for part in x.chunk(8, dim=1)]).sum(dim=0, dtype=dtype)


def _parts(hidden: Tensor, passes: int, chunk: int) -> list[Any]:
    """What to take of the tokens at once: slices; of two passes the same tokens of both, one pass after the other."""
    tokens, size = len(hidden) // passes, max(1, chunk // passes)
    starts = range(0, tokens, size)
    if passes == 1:
        return [slice(start, start + size) for start in starts]
    each = torch.arange(passes * tokens, device=hidden.device).view(passes, tokens)
    return [each[:, start : start + size].flatten() for start in starts]


def _difference(logits: Tensor, log_total: Tensor, probability: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """`share` of KL(p || q) + KL(q || p), summed over tokens, where p is the first half of `probability` and q the
    second; and `probability` with the gradient of that added, so that both go into the products at once.

    With d = log p - log q the sum is sum_v (p - q) d, and its gradient by the logits of p

        p (d - KL(p || q)) + p - q                           and by those of q  q (-d - KL(q || p)) + q - p.
    """
    (logits_p, logits_q), (total_p, total_q), (p, q) = (each.chunk(2) for each in (logits, log_total, probability))
    d = (logits_p - logits_q).sub_(total_p - total_q)
    kl_p, kl_q = (p * d).sum(dim=1, keepdim=True), -(q * d).sum(dim=1, keepdim=True)
    by_p = p * (d - (kl_p - 1 - 1 / share)) - q
    by_q = q * (d + (kl_q - 1 - 1 / share)).neg_() - p
    return share * (kl_p + kl_q).sum(), torch.cat([by_p, by_q]).mul_(share)
