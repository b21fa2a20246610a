"""The training objectives: label-smoothed cross-entropy, and R-Drop on top of it, each fused with the projection to the
vocabulary."""

from typing import Any, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

CHUNK = {"cpu": 512, "cuda": 16384}  # tokens whose logits exist at once; on a CPU, as many as stay in the cache


class Loss(Protocol):
    """What a training step asks of an objective."""

    passes: int  # times that a batch goes through the model, each time with other dropout

    def __call__(self, hidden: Tensor, weight: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """(loss, negative log-likelihood) of logits hidden @ weight.T, each summed over tokens and the mean over
        passes, in nats; only the first has a gradient.

        hidden [pass * token, d_model], a whole pass after the other; weight [vocab, d_model]; labels [pass * token].
        """
        ...


class LabelSmoothing:
    """Cross-entropy against 1 - smoothing on the right token, the rest spread evenly: Szegedy et al. 2016, section 7.

    Raises ValueError for a smoothing outside [0, 1).
    """

    passes = 1

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


class RDrop:
    """Two passes with different dropout, and what their predictions differ by: Liang et al. 2021, "R-Drop: regularized
    dropout for neural networks", equation 4, halved so that a step is as large as one of label smoothing alone.

    (loss_1 + loss_2) / 2 + alpha / 4 (KL(p_1 || p_2) + KL(p_2 || p_1))

    alpha: weight of the difference; the paper takes 5 for small translation data. A step costs two of the plain loss.
    Raises ValueError for a smoothing outside [0, 1) or an alpha that is not positive.
    """

    passes = 2

    def __init__(self, alpha: float = 5.0, smoothing: float = 0.1) -> None:
        if alpha <= 0:
            raise ValueError(f"loss.alpha={alpha}: must be more than 0, such as 5; for none, loss=label_smoothing")
        self.alpha = alpha
        self.cross_entropy = LabelSmoothing(smoothing)

    def __call__(
        self,
        hidden: Float[Tensor, "passes_and_token d_model"],
        weight: Float[Tensor, "vocab d_model"],
        labels: Int[Tensor, "passes_and_token"],
    ) -> tuple[Tensor, Tensor]:
        loss, likelihood = self.cross_entropy(hidden, weight, labels)
        difference = _ProjectedDifference.apply(hidden, weight)
        return loss / 2 + self.alpha / 4 * difference, likelihood / 2


class _ProjectedDifference(torch.autograd.Function):
    """KL(p || q) + KL(q || p) summed over tokens, for p = softmax(W h) of the first half of the rows and q of the
    second, with its gradient in closed form, a chunk at a time as above.

    With d = log p - log q, the sum is sum_v (p - q) d, and by the logits of p its gradient is

        p (d - KL(p || q)) + p - q                           with p and q, and the sign of d, exchanged for those of q.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor) -> Tensor:
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
        exact = torch.promote_types(dtype, torch.float32)
        chunk = CHUNK.get(device, 1024) // 2
        with torch.autocast(device, enabled=False):
            halves, lower = hidden.to(dtype).unflatten(0, (2, -1)), weight.to(dtype)
            total = torch.zeros((), dtype=exact, device=hidden.device)
            hidden_gradient, weight_gradient = torch.empty_like(halves), torch.zeros_like(weight, dtype=exact)
            for start in range(0, halves.shape[1], chunk):
                rows = halves[:, start : start + chunk].flatten(0, 1)
                log_p, log_q = (rows @ lower.T).to(exact).log_softmax(dim=1).chunk(2)
                p, q = log_p.exp(), log_q.exp()
                d = log_p.sub_(log_q)
                kl_p, kl_q = (p * d).sum(dim=1, keepdim=True), -(q * d).sum(dim=1, keepdim=True)
                total += (kl_p + kl_q).sum()
                apart = p - q
                by_p = p.mul_(d - kl_p).add_(apart)
                by_q = q.mul_(d.neg_().sub_(kl_q)).sub_(apart)
                by_logits = torch.cat([by_p, by_q]).to(dtype)
                hidden_gradient[:, start : start + chunk] = (by_logits @ lower).unflatten(0, (2, -1))
                weight_gradient += by_logits.T @ rows
        ctx.save_for_backward(hidden_gradient.flatten(0, 1).to(hidden.dtype), weight_gradient.to(weight.dtype))
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        hidden_gradient, weight_gradient = ctx.saved_tensors
        return hidden_gradient * gradient, weight_gradient * gradient
