"""The training objective."""

from jaxtyping import Float, Int
from torch import Tensor


class LabelSmoothing:
    """Cross-entropy against (1 - smoothing) on the right token and the rest spread evenly: Szegedy et al. 2016, section 7.

    Raises ValueError for a smoothing outside [0, 1).
    """

    def __init__(self, smoothing: float = 0.1) -> None:
        if not 0 <= smoothing < 1:
            raise ValueError(f"loss.smoothing={smoothing}: from 0 (off) up to, not including, 1; 0.1 is usual")
        self.smoothing = smoothing

    def __call__(
        self, logits: Float[Tensor, "token vocab"], labels: Int[Tensor, "token"]
    ) -> tuple[Tensor, Tensor]:
        """(smoothed loss, negative log-likelihood), each summed over tokens, in nats."""
        log_probs = logits.float().log_softmax(dim=-1)
        likelihood = -log_probs.gather(1, labels[:, None]).sum()
        if self.smoothing == 0:
            return likelihood, likelihood.detach()
        uniform = -log_probs.mean(dim=-1).sum()
        return (1 - self.smoothing) * likelihood + self.smoothing * uniform, likelihood.detach()

