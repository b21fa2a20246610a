"""Invariants of every encoder-decoder: padding, cached decoding, and the reordering of hypotheses.

A batch is 3 sources [batch, source], their mask (True = real token) and 3 targets of 5 tokens.
"""

import torch
from torch import Tensor

from headcount.model.encoder_decoder import EncoderDecoder

Batch = tuple[Tensor, Tensor, Tensor]


def check_padding_changes_nothing(model: EncoderDecoder, batch: Batch) -> None:
    """Each sentence alone, without padding, has the output that it has in the batch."""
    source, mask, target = batch
    together = model(source, mask, target)
    for row in range(3):
        length = int(mask[row].sum())
        alone = model(source[row : row + 1, :length], mask[row : row + 1, :length], target[row : row + 1])
        torch.testing.assert_close(alone[0], together[row], rtol=0, atol=1e-12)


def check_cached_decoding(model: EncoderDecoder, batch: Batch, beam: int) -> None:
    """Decoding step by step, `beam` rows a sentence, equals a forward pass over the prefix."""
    source, mask, target = batch
    rows = torch.arange(3).repeat_interleave(beam)
    state = model.reorder(model.start(source, mask), rows, torch.arange(3))
    for position in range(5):
        log_probs, state = model.step(target[rows, position], state)
        hidden = model(source, mask, target[:, : position + 1])[:, -1]
        expected = model.output(hidden).log_softmax(-1)[rows]
        torch.testing.assert_close(log_probs, expected, rtol=0, atol=1e-9)


def check_reorder(model: EncoderDecoder, batch: Batch) -> None:
    """Hypotheses change places, one sentence is done: each row goes on with its own source and prefix."""
    source, mask, target = batch
    state = model.reorder(model.start(source, mask), torch.arange(3).repeat_interleave(2), torch.arange(3))
    _, state = model.step(target[:, :2].flatten(), state)  # two hypotheses with different first tokens
    # Sentence 1 is done; in sentence 2 both hypotheses continue the second one.
    state = model.reorder(state, torch.tensor([1, 0, 5, 5]), torch.tensor([0, 2]))
    log_probs, _ = model.step(torch.tensor([5, 6, 7, 8]), state)
    for row, (sentence, first, second) in enumerate([(0, 1, 5), (0, 0, 6), (2, 1, 7), (2, 1, 8)]):
        prefix = torch.tensor([[target[sentence, first], second]])
        hidden = model(source[sentence : sentence + 1], mask[sentence : sentence + 1], prefix)[:, -1]
        torch.testing.assert_close(log_probs[row], model.output(hidden).log_softmax(-1)[0], rtol=0, atol=1e-9)
