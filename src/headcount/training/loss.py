"""The training objective: label-smoothed cross-entropy, fused with the projection to the vocabulary."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

CHUNK = {"cpu": 256, "cuda": 16384}  # tokens whose logits exist at once; on a CPU, as many as stay in the cache


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
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        exact = torch.promote_types(hidden.dtype, torch.float32)
        tiny = torch.finfo(exact).tiny  # a token less likely than that (e^-87 in float32) counts as just so likely
        needs_gradient = any(ctx.needs_input_grad)
        hidden_gradient, weight_gradient = torch.empty_like(hidden), torch.zeros_like(weight)
        loss = torch.zeros((), dtype=exact, device=hidden.device)
        likelihood = torch.zeros_like(loss)
        spread = smoothing / len(weight)
        all_words = weight.sum(dim=0)
        size = CHUNK.get(hidden.device.type, 1024)
        for start in range(0, len(hidden), size):
            rows = hidden[start : start + size]
            label = labels[start : start + size, None]
            logits = (rows @ weight.T).to(exact)
            right = logits.gather(1, label)
            p = logits.softmax(dim=1)
            log_right = p.gather(1, label).clamp(min=tiny).log()
            likelihood -= log_right.sum()
            if smoothing:
                log_total = right - log_right
                loss += smoothing * log_total.sum() - spread * (rows @ all_words).sum()
            if needs_gradient:
                p = p.to(rows.dtype)
                hidden_gradient[start : start + size] = p @ weight
                weight_gradient += p.T @ rows
        loss += (1 - smoothing) * likelihood
        if needs_gradient:
            hidden_gradient -= spread * all_words + (1 - smoothing) * weight[labels]
            weight_gradient -= spread * hidden.sum(dim=0)
            weight_gradient.index_add_(0, labels, hidden, alpha=smoothing - 1)
        ctx.save_for_backward(hidden_gradient, weight_gradient)
        return loss, likelihood

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor, Tensor, None, None]:
        hidden_gradient, weight_gradient = ctx.saved_tensors
        return hidden_gradient * gradient, weight_gradient * gradient, None, None
