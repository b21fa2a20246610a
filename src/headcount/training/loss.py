"""The training objective: label-smoothed cross-entropy, fused with the projection to the vocabulary."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

CHUNK = {"cpu": 512, "cuda": 16384}  # tokens whose logits exist at once; on a CPU, as many as stay in the cache


class LabelSmoothing:
    """Cross-entropy against 1 - smoothing on the right token, the rest spread evenly: Szegedy et al. 2016, section 7.

    Raises ValueError for a smoothing outside [0, 1).
    """

    def __init__(self, smoothing: float = 0.1) -> None:
        if not 0 <= smoothing < 1:
            raise ValueError(f"loss.smoothing={smoothing}: from 0 (off) up to, not including, 1; 0.1 is usual")
        self.smoothing = smoothing

    def __call__(
        self,
        hidden: Float[Tensor, "token d_model"],
        weight: Float[Tensor, "vocab d_model"],
        labels: Int[Tensor, "token"],
    ) -> tuple[Tensor, Tensor]:
        """(smoothed loss, negative log-likelihood) of logits hidden @ weight.T, each summed over tokens, in nats.

        Only the first has a gradient.
        """
        loss, likelihood = _ProjectedCrossEntropy.apply(hidden, weight, labels, self.smoothing)
        return loss, likelihood.detach()


class _ProjectedCrossEntropy(torch.autograd.Function):
    """The gradient of softmax and cross-entropy is known in closed form, so it is computed along with the loss, a chunk
    of tokens at a time: the logits of a whole batch, the largest tensor by far, never exist.

    With p = softmax(W h), right token y, smoothing s and V words:

        loss = -(1 - s) log p_y - s/V sum_v log p_v          d loss / d logits = p - s/V - (1 - s) onehot(y)

    Of these only p differs from word to word. What the two other terms give is a sum over the rows of W or over the
    tokens, known without another pass over the logits.

    In mixed precision logits and p are in the lower one, as they are under torch's autocast, and sums in float32. Where
    no gradient is wanted, as in validation, all is in the precision of the weights.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        needs_gradient = any(ctx.needs_input_grad)
        lower = needs_gradient and torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if lower else weight.dtype
        with torch.autocast(device, enabled=False):
            loss, likelihood, *gradients = _losses(
                hidden.to(dtype), weight.to(dtype), labels, smoothing, CHUNK.get(device, 1024), needs_gradient
            )
        if needs_gradient:
            ctx.save_for_backward(*(g.to(x.dtype) for g, x in zip(gradients, (hidden, weight), strict=True)))
        return loss, likelihood

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor, Tensor, None, None]:
        hidden_gradient, weight_gradient = ctx.saved_tensors
        return hidden_gradient * gradient, weight_gradient * gradient, None, None


def _losses(
    hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float, chunk: int, with_gradients: bool
) -> tuple[Tensor, ...]:
    """Loss and likelihood, and the gradients of the loss by hidden and weight."""
    exact = torch.promote_types(hidden.dtype, torch.float32)
    tiny = torch.finfo(exact).tiny  # a token less likely than that (e^-87 in float32) counts as just so likely
    spread = smoothing / len(weight)
    loss = torch.zeros((), dtype=exact, device=hidden.device)
    likelihood = torch.zeros_like(loss)
    hidden_gradient, weight_gradient = torch.empty_like(hidden), torch.zeros_like(weight, dtype=exact)
    all_words = weight.sum(dim=0, dtype=exact)
    for start in range(0, len(hidden), chunk):
        rows, label = hidden[start : start + chunk], labels[start : start + chunk, None]
        logits = rows @ weight.T
        p = logits.softmax(dim=1)
        log_right = p.gather(1, label).to(exact).clamp(min=tiny).log()
        likelihood -= log_right.sum()
        if smoothing:
            log_total = logits.gather(1, label) - log_right
            loss += smoothing * log_total.sum() - spread * (rows.to(exact) @ all_words).sum()
        if with_gradients:
            hidden_gradient[start : start + chunk] = p @ weight
            weight_gradient += p.T @ rows
    loss += (1 - smoothing) * likelihood
    if with_gradients:
        hidden_gradient -= spread * all_words + (1 - smoothing) * weight[labels]
        weight_gradient -= spread * hidden.sum(dim=0, dtype=exact)
        weight_gradient.index_add_(0, labels, hidden.to(exact), alpha=smoothing - 1)
    return loss, likelihood, hidden_gradient, weight_gradient
