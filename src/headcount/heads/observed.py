"""Attention of every head on given translations, by weight and by norm, between subwords (pieces) and between words.

By norm (Kobayashi et al. 2020, "Attention is not only a weight", equation 4): a key counts by the length of the vector
that it adds to the output, weight x ||value W_O||, with the head's slice of W_O. Both are shares: over all keys of a
query they sum to one.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headcount.data.batches import Batch, Sentences
from headcount.data.tokenizer import EOS
from headcount.errors import InputError
from headcount.grammar.corpus import words
from headcount.heads.analysis import Analysis, Arrays
from headcount.heads.evaluation_set import EvaluationSet
from headcount.heads.interface import KINDS, Heads, Hook, Layer
from headcount.heads.likelihood import batches
from headcount.heads.spelling import Spelled, Split
from headcount.model.attention import AttentionOutput

VIEWS = ("weight", "norm")
When = Literal["before", "after"]
"""The query of a target token: the position before it, which predicts it, or the one after, which reads it."""


@dataclass(frozen=True)
class Observed:
    """Attention on a batch of sentences.

    rows [batch]: the sentences. source [batch, piece]: True for a piece, not an end or padding. shares: by kind, [view,
    batch, head, query, key] of all positions.
    """

    rows: NDArray[np.int64]
    source: Tensor
    shares: dict[str, Tensor]

    def pieces(self, kind: str, when: When = "before") -> Tensor:
        """Shares between pieces, of all heads of a kind; what a query lacks of 1 is on the end of the source or the
        beginning of the target. when: of queries of the decoder."""
        read = kind != "encoder" and when == "after"
        shares = self.shares[kind][..., 1:, :] if read else self.shares[kind][..., :-1, :]
        return shares[..., 1:] if kind == "decoder" else shares[..., :-1] * self.source[:, None, None]


def between_words(share: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    """Shares between words of shares between pieces [view, batch, head, query, key]: the sum over the pieces of the
    key, the mean over those of the query (Clark et al. 2019, section 4.1). queries, keys: `Spelled.batch` [batch,
    piece, word]."""
    of_query = queries / queries.sum(dim=1, keepdim=True).clamp_min(1e-9)
    return torch.einsum("bqw,vbhqk,bkx->vbhwx", of_query, share, keys)


def spelled_sides(analysis: Analysis, sentences: EvaluationSet, split: Split = words) -> dict[str, Spelled]:
    """The words of source and target, and the pieces that spell them."""
    tokenizer = analysis.run.tokenizer
    return {
        side: Spelled(getattr(tokenizer, side), getattr(sentences, side), sentences.rows[side], split)
        for side in ("source", "target")
    }


def in_order(parts: Sequence[tuple[NDArray[np.int64], Mapping[str, NDArray]]], axis: int = 0) -> Arrays:
    """Arrays of all sentences in order, of those of batches: the sentences, which are `axis` of the arrays."""
    rows, arrays = zip(*parts, strict=True)
    back = np.argsort(np.concatenate(rows))
    return {name: np.concatenate([each[name] for each in arrays], axis).take(back, axis) for name in arrays[0]}


@torch.inference_mode()
def observed(heads: Heads, source: Sentences, target: Sentences) -> Iterator[Observed]:
    """Attention of all heads while these targets are translated from these sources."""
    for rows, batch in batches(heads, source, target):
        source_pieces = (batch.source_mask & batch.source.ne(EOS))[:, :-1]
        yield Observed(rows, source_pieces, _shares(heads, batch))


def _shares(heads: Heads, batch: Batch) -> dict[str, Tensor]:
    with recorded_attention(heads, whole=False) as records:
        heads.model.attention_weights(batch.source, batch.source_mask, batch.target_in)
    shares: dict[str, list[Tensor]] = {kind: [] for kind in KINDS}
    for layer in heads.layers:
        found = records.pop(layer)  # which is large
        both = torch.stack([found["pattern"], found["norm"]])
        shares[layer.kind].append(both / both.sum(dim=-1, keepdim=True).clamp_min(1e-12))
    return {kind: torch.cat(parts, dim=2) for kind, parts in shares.items()}


@contextmanager
def recorded_attention(heads: Heads, whole: bool = True) -> Iterator[dict[Layer, dict[str, Tensor]]]:
    """Record what the heads of every layer compute while the model runs with its weights, see `attention_weights`:
    pattern [batch, head, query, key], the weights; norm, each weight times ||value W_O||. If `whole`, also z [batch,
    head, query, d_head], their outputs before gates and W_O, query, key, value [batch, head, position, d_head] as the
    kind reads them, and gate [batch, head, query, 1 or d_head], of an `OutputGate`, by which z is multiplied already.
    Raises InputError for a run without weights."""
    records: dict[Layer, dict[str, Tensor]] = {}

    def recording(layer: Layer) -> Hook:
        output = heads.layers[layer].output.weight
        written = output.unflatten(1, (-1, heads.layers[layer].heads.size))  # [d_model, head, d_head]

        def record(read: tuple[Tensor, Tensor, Tensor], found: AttentionOutput) -> None:
            if found.weights is None:
                raise InputError("the model runs without its weights: call model.attention_weights")
            pattern, lengths = found.weights.float(), torch.einsum("bhkd,mhd->bhkm", read[2], written).float()
            records[layer] = {"pattern": pattern, "norm": pattern * lengths.norm(dim=-1)[:, :, None]}
            if whole:
                query, key, value = (each.float() for each in read)
                records[layer] |= {"z": found.output, "query": query, "key": key, "value": value}

        return record

    with heads.hooked({layer: recording(layer) for layer in heads.layers}), ExitStack() as handles:
        for layer, module in heads.layers.items():
            gate: Any = getattr(module, "output_gate", None)
            if whole and gate is not None:
                handles.callback(gate.register_forward_hook(partial(_keep_gates, records, layer)).remove)
        yield records


def _keep_gates(records: Any, layer: Layer, gate: Any, arguments: Any, _: Any) -> None:
    records[layer]["gate"] = gate.gates(arguments[-1]).float()
