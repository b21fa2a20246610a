"""Attention of every head on given translations, by weight and by norm, between subwords (pieces) and between words.

By norm (Kobayashi et al. 2020, "Attention is not only a weight", equation 4): a key counts by the length of the vector
that it adds to the output, weight x ||value W_O||, with the head's slice of W_O. Both are shares: over all keys of a
query they sum to one.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headcount.data.batches import Batch, Sentences, collate
from headcount.data.batching import in_order_of_length
from headcount.data.tokenizer import EOS
from headcount.errors import InputError
from headcount.heads.analysis import Analysis
from headcount.heads.interface import KINDS, Heads, Layer
from headcount.heads.likelihood import ROW_TOKENS
from headcount.model.multi_head import MultiHeadAttention

VIEWS = ("weight", "norm")
When = Literal["before", "after"]
"""The query of a target token: the position before it, which predicts it, or the one after, which reads it."""


class Attention(NamedTuple):
    """Shares of attention of all heads of a kind.

    share [view, batch, head, query, key]: between tokens of text, pieces or words. rest [view, batch, head, query]: on
    the token that is no text: the end of the source, or the beginning of the target.
    """

    share: Tensor
    rest: Tensor

    @property
    def by_weight(self) -> tuple[Tensor, Tensor]:
        """share [batch, head, query, key] and rest [batch, head, query] by weight."""
        return self.share[0], self.rest[0]

    def words(self, queries: Tensor, keys: Tensor) -> "Attention":
        """Between words: the sum over the pieces of the key, the mean over those of the query (Clark et al. 2019,
        section 4.1). queries, keys: `Spelled.batch` [batch, piece, word]."""
        of_query = queries / queries.sum(dim=1, keepdim=True).clamp_min(1e-9)
        share = torch.einsum("bqw,vbhqk,bkx->vbhwx", of_query, self.share, keys)
        return Attention(share, torch.einsum("bqw,vbhq->vbhw", of_query, self.rest))


@dataclass(frozen=True)
class Observed:
    """Attention on a batch of sentences.

    rows [batch]: the sentences. source [batch, piece]: True for a piece, not an end or padding. shares: by kind, [view,
    batch, head, query, key] of all positions.
    """

    rows: NDArray[np.int64]
    source: Tensor
    shares: dict[str, Tensor]

    def pieces(self, kind: str, when: When = "before") -> Attention:
        """Between pieces, of all heads of a kind. when: of queries of the decoder."""
        read = kind != "encoder" and when == "after"
        shares = self.shares[kind][..., 1:, :] if read else self.shares[kind][..., :-1, :]
        text = shares[..., 1:] if kind == "decoder" else shares[..., :-1] * self.source[:, None, None]
        return Attention(text, 1 - text.sum(dim=-1))


def lacks_source(analysis: Analysis) -> str | None:
    """Why attention to the source is not measured on a run that never reads it."""
    return "needs a run that reads its source (data.hide_source=false)" if analysis.run.translator.hide_source else None


@torch.inference_mode()
def observed(heads: Heads, source: Sentences, target: Sentences) -> Iterator[Observed]:
    """Attention of all heads while these targets are translated from these sources."""
    for rows in in_order_of_length(source.lengths, target.lengths, ROW_TOKENS):
        batch = collate(source, target, rows, 0).to(heads.model.device)
        source_pieces = (batch.source_mask & batch.source.ne(EOS))[:, :-1]
        yield Observed(rows, source_pieces, _shares(heads, batch))


def _shares(heads: Heads, batch: Batch) -> dict[str, Tensor]:
    with recorded_weights(heads) as records:
        heads.model.attention_weights(batch.source, batch.source_mask, batch.target_in)
    found: dict[str, list[Tensor]] = {kind: [] for kind in KINDS}
    for layer, shares in records.items():
        found[layer.kind].append(shares)
    return {kind: torch.cat(parts, dim=2) for kind, parts in found.items()}


@contextmanager
def recorded_weights(heads: Heads) -> Iterator[dict[Layer, Tensor]]:
    """Record the shares [view, batch, head, query, key] of every layer while the model runs with its weights."""
    records: dict[Layer, Tensor] = {}

    def recording(layer: Layer, module: MultiHeadAttention) -> Any:
        def record(_: Any, arguments: Any, found: Any) -> None:
            if found.weights is None:
                raise InputError("recorded_weights: the model runs without its weights; call model.attention_weights")
            weights = found.weights.float()
            sizes = added_norms(module, arguments[2])
            records[layer] = _normal(torch.stack([weights, weights * sizes[:, :, None]]))

        return record

    with ExitStack() as hooks:
        for layer, module in heads.layers.items():
            attend: Any = module.attend
            hooks.callback(attend.register_forward_hook(recording(layer, module)).remove)
        yield records


def added_norms(module: MultiHeadAttention, value: Tensor) -> Tensor:
    """||value W_O|| of each key for each head, [batch, head, key]; value [batch, head, key, d_head]."""
    heads = module.heads
    weight = module.output.weight.unflatten(1, (heads.count, heads.size))
    return torch.einsum("bhkd,mhd->bhkm", value, weight).float().norm(dim=-1)


def _normal(shares: Tensor) -> Tensor:
    return shares / shares.sum(dim=-1, keepdim=True).clamp_min(1e-12)
