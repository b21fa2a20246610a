"""Likelihood: log-probability of given targets under a model, and perplexity."""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from headcount.data.batches import Sentences, collate
from headcount.data.batching import plan_split
from headcount.data.tokenizer import PAD
from headcount.decoding.translator import LineError
from headcount.devices import refused_memory
from headcount.model.encoder_decoder import EncoderDecoder

LOGITS_AT_ONCE = 512  # tokens whose logits [token, vocab] are in memory at the same time


class TargetScorer:
    """Log-probability of given targets under a model: no search, the target is fed in.

    encode_source and encode_target turn lines into token ids. batch_tokens: padded tokens a side of a batch.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        encode_source: Callable[[list[str]], list[list[int]]],
        encode_target: Callable[[list[str]], list[list[int]]],
        batch_tokens: int = 8192,
    ) -> None:
        self.model = model
        self.encode_source = encode_source
        self.encode_target = encode_target
        self.batch_tokens = batch_tokens

    @torch.inference_mode()
    def score(self, sources: Sequence[str], targets: Sequence[str]) -> tuple[list[float], list[int]]:
        """Log-probability of each target, in nats, and how many tokens it has, its end counted. Raises LineError where
        memory does not suffice, InputError for gates that differ from sentence to sentence."""
        if not sources:
            return [], []
        self.model.check_gates()
        source = Sentences.of(self.encode_source(list(sources)))
        target = Sentences.of(self.encode_target(list(targets)))
        log_probs = torch.zeros(len(sources), dtype=torch.float64)
        plan = plan_split(source.lengths, target.lengths, batch_tokens=self.batch_tokens)
        for rows in plan.batches:
            batch = collate(source, target, rows, 0).to(self.model.device)
            try:
                hidden = self.model(batch.source, batch.source_mask, batch.target_in)
                losses = self._losses(hidden.flatten(0, 1), batch.target_out.flatten()).view(batch.target_out.shape)
            except (MemoryError, RuntimeError) as error:
                if not refused_memory(error):
                    raise
                row = int(rows[(source.lengths + target.lengths)[rows].argmax()])
                lengths = f"{source.lengths[row]:,} source and {target.lengths[row]:,} target tokens"
                raise LineError(row, f"not enough memory for {lengths}; cut it into sentences") from error
            log_probs[rows] = -losses.sum(dim=1).cpu().double()
        return log_probs.tolist(), target.lengths.tolist()

    def _losses(self, hidden: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy [token] of the targets [token], 0 for padding, given decoder output [token, d_model]."""
        parts = zip(hidden.split(LOGITS_AT_ONCE), target.split(LOGITS_AT_ONCE), strict=True)
        losses = [
            F.cross_entropy(self.model.output(x).float(), y, ignore_index=PAD, reduction="none") for x, y in parts
        ]
        return torch.cat(losses)


def perplexity(loss: float) -> float:
    """exp(loss); inf where no float is that large, which is beyond a loss of 709."""
    return math.inf if loss > 709 else math.exp(loss)
