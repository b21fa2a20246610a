"""The training objectives: label-smoothed cross-entropy, fused with the projection to the vocabulary, and R-Drop and
SimCut, which compare two passes of the model."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt, Lt
from jaxtyping import Float, Int
from torch import Tensor, nn

from headcount.data.tokenizer import BOS, EOS
from headcount.model.encoder_decoder import EncoderDecoder, soft_capped
from headcount.settings import Natural

GRAIN = 64  # tokens that a product has a multiple of, the last ones zeros: oneDNN compiles it for every new number
CHUNK = {"cpu": 512, "cuda": 16384}  # tokens whose logits exist at once; on a CPU, as many as stay in the cache

Smoothing = Annotated[float, Ge(0), Lt(1)]
Alpha = Annotated[float, Gt(0)]


class LabelSmoothing:
    """Label smoothing: cross-entropy against 1 - smoothing on the right token, the rest spread evenly; Szegedy et al.
    2016, section 7. Other losses are subclasses.

    passes: times that a batch goes through the model, each with other dropout: 1 or 2. p_cut: probability that the
    second pass lacks the embedding of a token, see `token_cutoff`.
    """

    passes = 1
    p_cut = 0.0

    def __init__(self, *, smoothing: Smoothing) -> None:
        self.smoothing = smoothing

    def at(self, step: int) -> "LabelSmoothing":
        """The objective of the optimizer step after `step` others."""
        return self

    def __call__(
        self,
        hidden: Float[Tensor, "passes_and_token d_model"],
        weight: Float[Tensor, "vocab d_model"],
        labels: Int[Tensor, " token"],
        cap: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(loss, negative log-likelihood) of the logits hidden @ weight.T, each summed over tokens, in nats; the mean
        over the passes that have a cross-entropy. The loss has a gradient, the log-likelihood has none. hidden: one
        pass after the other. cap: of the logits, see `soft_capped`."""
        loss, likelihood = _ProjectedCrossEntropy.apply(hidden, weight, labels, self.smoothing, cap)
        return loss, likelihood


class TwoPasses(LabelSmoothing, ABC):
    """Label smoothing and, from optimizer step `start` on, a divergence of two passes, with weight alpha, by autograd.
    A step costs two of the plain loss."""

    passes = 2

    def __init__(self, *, alpha: Alpha, smoothing: Smoothing, start: Natural) -> None:
        super().__init__(smoothing=smoothing)
        self.alpha = alpha
        self.start = start

    def at(self, step: int) -> LabelSmoothing:
        return self if step >= self.start else LabelSmoothing(smoothing=self.smoothing)

    def __call__(
        self, hidden: Tensor, weight: Tensor, labels: Tensor, cap: float | None = None
    ) -> tuple[Tensor, Tensor]:
        logits = F.linear(hidden, weight) if cap is None else soft_capped(F.linear(hidden, weight), cap)
        exact = torch.promote_types(logits.dtype, torch.float32)  # the difference of two passes is small
        log_p, log_q = logits.log_softmax(dim=1, dtype=exact).chunk(2)
        loss, likelihood = self.compared(log_p, log_q, labels)
        return loss, likelihood.detach()

    @abstractmethod
    def compared(self, log_p: Tensor, log_q: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and negative log-likelihood of the log-probabilities of both passes, each [token, vocab]."""

    def smoothed(self, log_p: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Label-smoothed cross-entropy of one pass, and its negative log-likelihood."""
        likelihood = -log_p.gather(1, labels[:, None]).sum()
        return (1 - self.smoothing) * likelihood - self.smoothing / log_p.shape[1] * log_p.sum(), likelihood


class RDrop(TwoPasses):
    """R-Drop: two passes with different dropout, and the divergence of their predictions; Liang et al. 2021, "R-Drop:
    regularized dropout for neural networks", equation 4, halved so that a step is as large as one of label smoothing:

    (loss_1 + loss_2) / 2 + alpha / 4 (KL(p_1 || p_2) + KL(p_2 || p_1))
    """

    def compared(self, log_p: Tensor, log_q: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        one, other = self.smoothed(log_p, labels), self.smoothed(log_q, labels)
        both_ways = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum()
        return (one[0] + other[0]) / 2 + self.alpha / 4 * both_ways, (one[1] + other[1]) / 2


class SimCut(TwoPasses):
    """SimCut: a second pass lacks the embeddings of some tokens, and both predictions are pulled together; Gao et al.
    2022, "Bi-SimCut: a simple strategy for boosting neural machine translation":

    loss_1 + alpha KL(p_1 || p_2), with the gradient of both
    """

    def __init__(
        self, *, alpha: Alpha, p_cut: Annotated[float, Gt(0), Lt(1)], smoothing: Smoothing, start: Natural
    ) -> None:
        super().__init__(alpha=alpha, smoothing=smoothing, start=start)
        self.p_cut = p_cut

    def compared(self, log_p: Tensor, log_q: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        loss, likelihood = self.smoothed(log_p, labels)
        return loss + self.alpha * (log_p.exp() * (log_p - log_q)).sum(), likelihood


@contextmanager
def token_cutoff(model: EncoderDecoder, p: float) -> Iterator[None]:
    """Token cutoff: within it, the model reads zeros in place of the embedding of each token with probability p; Shen
    et al. 2020, "A simple but tough-to-beat data augmentation approach for natural language understanding and
    generation", as changed by Gao et al. 2022: nothing is scaled; positions, begin and end of sentence stay."""

    def cut(embedding: nn.Module, inputs: tuple[Tensor], embedded: Tensor) -> Tensor:
        (tokens,) = inputs
        kept = (torch.rand(tokens.shape, device=tokens.device) >= p) | (tokens == BOS) | (tokens == EOS)
        return embedded * kept[..., None]

    embeddings = {model.source_embedding, model.target_embedding} if p else ()
    hooks = [embedding.register_forward_hook(cut) for embedding in embeddings]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class _ProjectedCrossEntropy(torch.autograd.Function):
    """Fused projection and cross-entropy: the gradient, known in closed form, is computed along with the loss, a chunk
    of tokens at a time. The logits of a whole batch, the largest tensor by far, never exist.

    With p = softmax(W h), right token y, smoothing s and V words:

        loss = -(1 - s) log p_y - s/V sum_v log p_v          d loss / d logits = p - s/V - (1 - s) onehot(y)

    The term s/V is the same for every word, so its share of the gradients is a sum over the rows of W or over the
    tokens. p_y - 1 + s is computed as s minus the sum of all other p, since p_y may be rounded to bf16. With a cap c,
    logits are c tanh(W h / c), of which each has the slope 1 - (logit / c)^2: s/V is in that product.

    In mixed precision, logits and p have the lower precision, p_y - 1 + s and sums float32. Without gradients, as in
    validation, all have the precision of the weights.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float, cap: float | None
    ) -> tuple[Tensor, Tensor]:
        device, size = hidden.device.type, CHUNK.get(hidden.device.type, 1024)
        with_gradients = any(ctx.needs_input_grad)
        lower = with_gradients and torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if lower else weight.dtype
        exact = torch.promote_types(dtype, torch.float32)
        tiny = torch.finfo(exact).tiny  # a token less likely than that (e^-87 in float32) counts as just so likely
        spread = smoothing / len(weight)
        loss = torch.zeros((), dtype=exact, device=hidden.device)
        likelihood = torch.zeros_like(loss)
        with torch.autocast(device, enabled=False):
            h, w = hidden.to(dtype), weight.to(dtype)
            by_hidden, by_weight = torch.empty_like(h), torch.zeros_like(w, dtype=exact)
            all_words = w.sum(dim=0, dtype=exact)
            # One allocation for all parts: fresh memory takes as long as the product.
            scratch = w.new_empty(2, min(size, len(h)) + GRAIN, len(w))
            for start in range(0, len(h), size):
                part = slice(start, start + size)
                count = len(h[part])
                right = torch.arange(count, device=h.device), labels[part]
                rows = F.pad(h[part], (0, 0, 0, -count % GRAIN))
                scores, by_logits = scratch[:, : len(rows)]
                logits = torch.mm(rows, w.T, out=scores)[:count]
                logits = logits if cap is None else soft_capped(logits, cap)
                p = torch.softmax(logits, dim=1, out=by_logits[:count])
                log_right = p[right].to(exact).clamp(min=tiny).log()
                likelihood -= log_right.sum()
                if smoothing:
                    total = (rows[:count].to(exact) @ all_words).sum() if cap is None else logits.sum(dtype=exact)
                    loss += smoothing * (logits[right] - log_right).sum() - spread * total
                if with_gradients:
                    p[right] = p.new_zeros(())  # a number would be copied to a GPU
                    # In eight parts, since torch rounds a sum to bf16; asked for another type, it copies all of p.
                    others = torch.stack([some.sum(dim=1) for some in p.chunk(8, dim=1)]).sum(dim=0, dtype=exact)
                    p[right] = (smoothing - others).to(dtype)
                    if cap is not None:
                        p -= spread
                        p *= 1 - (logits / cap).square()
                    by_logits[count:] = 0
                    by_hidden[part] = (by_logits @ w)[:count]
                    by_weight += by_logits.T @ rows
            loss += (1 - smoothing) * likelihood
            if with_gradients and cap is None:
                by_hidden -= spread * all_words
                by_weight -= spread * h.sum(dim=0, dtype=exact)
        ctx.save_for_backward(by_hidden.to(hidden.dtype), by_weight.to(weight.dtype))
        ctx.mark_non_differentiable(likelihood)
        return loss, likelihood

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        by_hidden, by_weight = ctx.saved_tensors
        return by_hidden * gradient, by_weight * gradient, None, None, None
