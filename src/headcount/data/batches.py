"""Batches: the tensors of the sentence pairs that a plan names, and streams of them."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from headcount.data.batching import Epochs
from headcount.data.tokenizer import BOS, EOS, PAD


@dataclass  # not frozen: in precision=bf16-true Lightning converts a batch field by field, in place
class Batch:
    """One micro-batch of one process.

    source: piece numbers; each row ends with EOS, then PAD. source_mask: True = may attend: a token, not padding.
    target_in: the decoder's input, from BOS. target_out: the tokens to predict; each row ends with EOS, then PAD.
    real: the places of the tokens of `target_out`, row by row, without those of padding. rows: row numbers in the
    split, always on the CPU. step_tokens: real tokens of `target_out` in the whole optimizer step, of all processes and
    micro-batches; with subword sampling, the number that the plan expects. tokens: real source and target tokens of
    this batch. has_padding: whether there is padding in `source`.

    All that follows from lengths is found here: to find or count tokens on an accelerator would make the processor wait
    for it.
    """

    source: Int64[Tensor, "batch source"]
    source_mask: Bool[Tensor, "batch source"]
    target_in: Int64[Tensor, "batch target"]
    target_out: Int64[Tensor, "batch target"]
    real: Int64[Tensor, " real"]
    rows: Int64[Tensor, " batch"]
    step_tokens: int
    tokens: int
    has_padding: bool

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Batch":
        """The batch on that device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Batch":
        """The batch in page-locked memory, from which a copy to a GPU need not be waited for."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        names = ("source", "source_mask", "target_in", "target_out", "real")
        changed: dict[str, Any] = {name: change(getattr(self, name)) for name in names}
        return replace(self, **changed)


@dataclass(frozen=True)
class Sentences:
    """Piece numbers of many sentences in one array, which may be a memory-mapped file.

    pieces: int32. starts, ends: int64 [sentence]; sentence i is `pieces[starts[i]:ends[i]]`. Other data may lie between
    the sentences.
    """

    pieces: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, ids: list[list[int]]) -> "Sentences":
        """From one list of piece numbers for each sentence."""
        offsets = np.cumsum([0, *map(len, ids)], dtype=np.int64)
        pieces = np.fromiter(itertools.chain.from_iterable(ids), np.int32, offsets[-1])
        return cls(pieces, offsets[:-1], offsets[1:])

    def row(self, number: int) -> list[int]:
        """Piece numbers of one sentence."""
        ids: list[int] = self.pieces[self.starts[number] : self.ends[number]].tolist()
        return ids

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of every sentence, with EOS."""
        return self.ends - self.starts + 1

    def padded(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The pieces of `rows`, int64 [row, longest + 1] with PAD at the end, and the number of pieces of each row."""
        starts = self.starts[rows]
        lengths = self.ends[rows] - starts
        columns = np.arange(lengths.max() + 1)
        inside = columns < lengths[:, None]
        padded = np.full(inside.shape, PAD, dtype=np.int64)
        padded[inside] = self.pieces[(starts[:, None] + columns)[inside]]
        return padded, lengths


def collate(source: Sentences, target: Sentences, rows: np.ndarray, step_tokens: int, sampled: bool = False) -> Batch:
    """The tensors of the sentence pairs `rows`. sampled: the sentences are only those of `rows`, in that order."""
    each = np.arange(len(rows))
    numbers = each if sampled else rows
    source_ids, lengths = source.padded(numbers)
    source_ids[each, lengths] = EOS
    target_out, target_lengths = target.padded(numbers)
    target_in = np.concatenate([np.full((len(rows), 1), BOS), target_out[:, :-1]], axis=1)
    target_out[each, target_lengths] = EOS
    return Batch(
        source=torch.from_numpy(source_ids),
        source_mask=torch.from_numpy(np.arange(source_ids.shape[1]) <= lengths[:, None]),
        target_in=torch.from_numpy(target_in),
        target_out=torch.from_numpy(target_out),
        real=torch.from_numpy(np.flatnonzero(target_out != PAD)),
        rows=torch.from_numpy(np.asarray(rows, dtype=np.int64)),
        step_tokens=step_tokens,
        tokens=int(lengths.sum() + target_lengths.sum()) + 2 * len(rows),
        has_padding=bool(lengths.min() + 1 < source_ids.shape[1]),
    )


Resample = Callable[[np.ndarray, tuple[int, ...], int], tuple[Sentences, Sentences]]
"""Samples the segmentation of sentence pairs: (rows, seed, most tokens) -> sources and targets, in the order of the
rows. A sentence has more tokens only if its best segmentation has."""


@dataclass(eq=False)
class TrainStream(IterableDataset[Batch]):
    """The endless training batches of one process, from optimizer step `start_step`.

    resample: subword sampling, from epoch `epochs.start_epoch` on. No batch exceeds the budget, and `Batch.step_tokens`
    is the number that the plan expects, the same in all processes. None: always the pieces of `source` and `target`.
    """

    source: Sentences
    target: Sentences
    epochs: Epochs
    rank: int
    world_size: int
    start_step: int
    resample: Resample | None = None

    def __iter__(self) -> Iterator[Batch]:
        # The loader asks its n workers in turn, so each gives every n-th batch.
        worker = get_worker_info()
        first, stride = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for epoch, rows, step_tokens in itertools.islice(self._walk(), first, None, stride):
            if self.resample is None or epoch < self.epochs.start_epoch:
                yield collate(self.source, self.target, rows, step_tokens)
            else:
                # Each row occurs once an epoch, so the first row identifies the batch.
                seed, longest = (self.epochs.seed, epoch, int(rows[0])), self.epochs.batch_tokens // len(rows)
                yield collate(*self.resample(rows, seed, longest), rows, step_tokens, sampled=True)

    def _walk(self) -> Iterator[tuple[int, np.ndarray, int]]:
        epoch, step = self.epochs.locate(self.start_step)
        while True:
            for rows, step_tokens in self.epochs.plan(epoch).share(self.rank, self.world_size, step):
                yield epoch, rows, step_tokens
            epoch, step = epoch + 1, 0


def collate_planned(source: Sentences, target: Sentences, planned: tuple[np.ndarray, int]) -> Batch:
    """The batch of (rows, step_tokens), as `EpochPlan.share` gives them."""
    return collate(source, target, *planned)
