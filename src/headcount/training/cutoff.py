"""Token cutoff: a pass lacks the embeddings of some tokens, drawn anew each time."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from headcount.data.tokenizer import BOS, EOS
from headcount.model.encoder_decoder import EncoderDecoder


@contextmanager
def token_cutoff(model: EncoderDecoder, p: float, whole: int) -> Iterator[None]:
    """Within it, the model reads zeros in place of the embedding of each token with probability p: Shen et al. 2020, "A
    simple but tough-to-beat data augmentation approach for natural language understanding and generation", with the
    changes of Gao et al. 2022: nothing is scaled, positions stay, and so do begin and end of sentence.

    whole: the rows at the beginning of a batch that keep all their tokens. p 0: no change.
    """

    def cut(embedding: nn.Module, inputs: tuple[Tensor], embedded: Tensor) -> Tensor:
        (tokens,) = inputs
        kept = (torch.rand(tokens.shape, device=tokens.device) >= p) | (tokens == BOS) | (tokens == EOS)
        kept[:whole] = True
        return embedded * kept[..., None]

    embeddings = {model.source_embedding, model.target_embedding} if p else ()
    hooks = [embedding.register_forward_hook(cut) for embedding in embeddings]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
