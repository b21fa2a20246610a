"""Log-probability of each target token under many settings of the heads, in few passes of the model.

The settings of a batch are rows of one larger batch. Where a setting leaves the heads of the encoder alone, its output
is computed once.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from headcount.data.batches import Batch, Sentences, collate
from headcount.data.batching import in_order_of_length
from headcount.data.tokenizer import PAD
from headcount.heads.interface import Heads, Layer

LOGITS_AT_ONCE = 256  # tokens whose logits [token, vocab] are in memory at the same time
ROW_TOKENS = 2048  # padded tokens of all settings of a batch in one pass
Progress = Callable[[int], None]

Fill = Callable[[Layer, Tensor], Tensor]
"""What takes the place of a head that is off: a layer and its outputs [batch, head, query, d_head], to a tensor that
fits them."""


@dataclass(frozen=True)
class TokenLogProbs:
    """Log-probabilities in nats of target tokens under each setting.

    values: [setting, token], float32, the tokens of all sentences one after the other, ends counted. lengths: tokens of
    each sentence, [sentence].
    """

    values: np.ndarray
    lengths: np.ndarray

    @property
    def sums(self) -> np.ndarray:
        """Log-probability of each sentence, [setting, sentence], float64."""
        starts = np.concatenate([[0], np.cumsum(self.lengths)[:-1]])
        if not len(self.lengths):
            return np.zeros((len(self.values), 0))
        return np.add.reduceat(self.values.astype(np.float64), starts, axis=1)


def batches(
    heads: Heads, source: Sentences, target: Sentences, progress: Progress | None = None
) -> Iterator[tuple[NDArray[np.int64], Batch]]:
    """The rows of each batch, sentences of about one length, and the batch; `progress` gets their number afterwards."""
    for rows in in_order_of_length(source.lengths, target.lengths, ROW_TOKENS) if len(target.lengths) else ():
        yield rows, collate(source, target, rows, 0).to(heads.model.device)
        if progress is not None:
            progress(len(rows))


@torch.inference_mode()
def token_log_probs(
    heads: Heads,
    source: Sentences,
    target: Sentences,
    gates: Tensor,
    fill: Fill | None = None,
    progress: Progress | None = None,
) -> TokenLogProbs:
    """Log-probabilities of the targets under each row of `gates` [setting, head].

    fill: the output of a head whose gate is 0 (in between: a mixture); None for zeros. progress: called with the number
    of sentences done since the last call. Raises InputError within gates that differ from sentence to sentence.
    """
    heads.model.check_gates()
    lengths = target.lengths
    values = np.zeros((len(gates), int(lengths.sum())), dtype=np.float32)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    for rows, batch in batches(heads, source, target, progress):
        inside = batch.target_out.ne(PAD).cpu().numpy()
        places = (starts[rows][:, None] + np.arange(inside.shape[1]))[inside]
        for settings, found in _passes(heads, batch, gates, fill):
            values[settings[:, None].cpu().numpy(), places] = found.cpu().numpy()[:, inside]
    return TokenLogProbs(values, lengths)


def _passes(heads: Heads, batch: Batch, gates: Tensor, fill: Fill | None) -> Iterator[tuple[Tensor, Tensor]]:
    """The settings of each pass, and the log-probabilities [setting, batch, target] of its targets, 0 for padding."""
    model, rows = heads.model, len(batch.source)
    of_encoder = [number for number, head in enumerate(heads.names) if head.kind == "encoder"]
    touched = (gates[:, of_encoder] != 1).any(dim=1)
    memory = model.encode(batch.source, batch.source_mask)
    at_once = max(1, ROW_TOKENS // max(batch.source.numel(), batch.target_in.numel()))
    for encoder in (False, True):
        for settings in (touched == encoder).nonzero()[:, 0].split(at_once):
            count = len(settings)
            if not count:
                continue
            mask = batch.source_mask.repeat(count, 1)
            with applied(heads, gates[settings].repeat_interleave(rows, dim=0), fill):
                states = model.encode(batch.source.repeat(count, 1), mask) if encoder else memory.repeat(count, 1, 1)
                hidden = model.decode(states, mask, batch.target_in.repeat(count, 1))
            yield settings, log_probs(heads, hidden, batch.target_out.repeat(count, 1)).unflatten(0, (count, rows))


def applied(heads: Heads, gates: Tensor, fill: Fill | None) -> AbstractContextManager[None]:
    """Gates [batch, head] whose complement of `fill` takes the place of the heads' outputs."""
    if fill is None:
        return heads.gated(gates)

    def edit(layer: Layer, output: Tensor) -> Tensor:
        own = gates[:, heads.columns(layer), None, None]
        return torch.where(own == 1, output, own * output + (1 - own) * fill(layer, output))

    changed = [layer for layer in heads.layers if (gates[:, heads.columns(layer)] != 1).any()]
    return heads.edited({layer: partial(edit, layer) for layer in changed})


def batch_log_probs(heads: Heads, batch: Batch) -> Tensor:
    """Log-probabilities [batch, target] of the targets of a batch, 0 for padding."""
    return log_probs(heads, heads.model(batch.source, batch.source_mask, batch.target_in), batch.target_out)


def log_probs(heads: Heads, hidden: Tensor, target: Tensor) -> Tensor:
    """Log-probabilities [batch, target] of target tokens, 0 for padding, given decoder output [batch, target, d]."""
    parts = zip(hidden.flatten(0, 1).split(LOGITS_AT_ONCE), target.flatten().split(LOGITS_AT_ONCE), strict=True)
    output = heads.model.output
    losses = [F.cross_entropy(output(x).float(), y, ignore_index=PAD, reduction="none") for x, y in parts]
    return -torch.cat(losses).view(target.shape)
