"""The training objective: label-smoothed cross-entropy, fused with the projection to the vocabulary."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

CHUNK = {"cpu": 128, "cuda": 16384}  # tokens whose logits exist at once; on a CPU, as many as stay in the cache


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
    of tokens at a time: the logits of a whole batch, the largest tensor by far, never exist."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        needs_gradient = any(ctx.needs_input_grad)
        hidden_gradient, weight_gradient = torch.empty_like(hidden), torch.zeros_like(weight)
        exact = torch.promote_types(hidden.dtype, torch.float32)
        loss = torch.zeros((), dtype=exact, device=hidden.device)
        likelihood = torch.zeros_like(loss)
        spread = smoothing / len(weight)
        size = CHUNK.get(hidden.device.type, 1024)
        for start in range(0, len(hidden), size):
            rows = hidden[start : start + size]
            label = labels[start : start + size, None]
            logits = (rows @ weight.T).to(exact)
            log_total = logits.logsumexp(dim=1, keepdim=True)
            right = (log_total - logits.gather(1, label)).sum()
            likelihood += right
            loss += (1 - smoothing) * right
            if smoothing:
                loss += smoothing * (log_total.sum() - logits.sum() / len(weight))
            if needs_gradient:
                # d loss / d logits = softmax - smoothed target
                gradient = logits.sub_(log_total).exp_().sub_(spread)
                gradient.scatter_add_(1, label, gradient.new_full(label.shape, smoothing - 1))
                gradient = gradient.to(rows.dtype)
                hidden_gradient[start : start + size] = gradient @ weight
                weight_gradient += gradient.T @ rows
        ctx.save_for_backward(hidden_gradient, weight_gradient)
        return loss, likelihood

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor, Tensor, None, None]:
        hidden_gradient, weight_gradient = ctx.saved_tensors
        return hidden_gradient * gradient, weight_gradient * gradient, None, None
