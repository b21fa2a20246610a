"""Which sentences train together, in what order, on which process; and how they become tensors.

The plan of an epoch is a pure function of lengths, token budget, seed, epoch, and world size times accumulation.
So resuming in mid-epoch is: the same plan, less the batches already consumed; and one process that accumulates two
micro-batches sees what two processes see.

Lengths here are tokens with the end of sentence counted, in the source as in the target.
"""

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from headcount.data.tokenizer import BOS, EOS, PAD
from headcount.errors import InputError

Lengths = tuple[np.ndarray, np.ndarray]  # tokens of every source and of every target
MANY = 128  # rows from which a batch is cut to a multiple of 8: products are compiled anew for every new shape
JITTER = 1.0  # tokens: how far a length is moved before sorting, so that epochs group sentences differently


@dataclass  # not frozen: in precision=bf16-true Lightning converts a batch field by field, in place
class Batch:
    """One micro-batch of one process.

    Args:
        source: piece numbers, each row ends with EOS, then PAD.
        source_mask: True where `source` holds a token (may be attended to).
        target_in: what the decoder reads: BOS first.
        target_out: what it should say: ends with EOS, then PAD.
        rows: row numbers in the split.
        step_tokens: real tokens of `target_out` in the whole optimizer step: all processes, all micro-batches; where
            pieces are drawn, as many as the plan expects.
        tokens: real source and target tokens of this batch, padding left out; counted beforehand, since to ask an
            accelerator would make it wait.
    """

    source: Int64[Tensor, "batch source"]
    source_mask: Bool[Tensor, "batch source"]
    target_in: Int64[Tensor, "batch target"]
    target_out: Int64[Tensor, "batch target"]
    rows: Int64[Tensor, " batch"]
    step_tokens: int
    tokens: int

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Batch":
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Batch":
        return self._each(Tensor.pin_memory)

    def _each(self, move: Callable[[Tensor], Tensor]) -> "Batch":
        return Batch(
            source=move(self.source),
            source_mask=move(self.source_mask),
            target_in=move(self.target_in),
            target_out=move(self.target_out),
            rows=move(self.rows),
            step_tokens=self.step_tokens,
            tokens=self.tokens,
        )


@dataclass(frozen=True)
class Sentences:
    """Piece numbers of many sentences, all in one array (which may be a memory-mapped file).

    Args:
        pieces: int32, holds the sentences and maybe something else between them.
        starts: int64 [sentence]; sentence i is `pieces[starts[i]:ends[i]]`.
        ends: int64 [sentence].
    """

    pieces: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, ids: list[list[int]]) -> "Sentences":
        """From a list of piece numbers a sentence."""
        offsets = np.cumsum([0, *map(len, ids)], dtype=np.int64)
        pieces = np.fromiter(itertools.chain.from_iterable(ids), np.int32, offsets[-1])
        return cls(pieces, offsets[:-1], offsets[1:])

    def row(self, number: int) -> list[int]:
        """Piece numbers of one sentence."""
        ids: list[int] = self.pieces[self.starts[number] : self.ends[number]].tolist()
        return ids

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of every sentence, EOS counted."""
        return self.ends - self.starts + 1

    def padded(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pieces of `rows` as int64 [row, longest + 1], PAD behind, and how many each row has."""
        starts = self.starts[rows]
        lengths = self.ends[rows] - starts
        columns = np.arange(lengths.max() + 1)
        inside = columns < lengths[:, None]
        padded = np.full(inside.shape, PAD, dtype=np.int64)
        padded[inside] = self.pieces[(starts[:, None] + columns)[inside]]
        return padded, lengths


def collate(source: Sentences, target: Sentences, rows: np.ndarray, step_tokens: int, drawn: bool = False) -> Batch:
    """The tensors of the sentence pairs `rows`; `drawn`: the sentences are those of `rows` alone, in that order."""
    each = np.arange(len(rows))
    wanted = each if drawn else rows
    source_ids, lengths = source.padded(wanted)
    source_ids[each, lengths] = EOS
    target_out, target_lengths = target.padded(wanted)
    target_in = np.concatenate([np.full((len(rows), 1), BOS), target_out[:, :-1]], axis=1)
    target_out[each, target_lengths] = EOS
    return Batch(
        source=torch.from_numpy(source_ids),
        source_mask=torch.from_numpy(np.arange(source_ids.shape[1]) <= lengths[:, None]),
        target_in=torch.from_numpy(target_in),
        target_out=torch.from_numpy(target_out),
        rows=torch.from_numpy(np.asarray(rows, dtype=np.int64)),
        step_tokens=step_tokens,
        tokens=int(lengths.sum() + target_lengths.sum()) + 2 * len(rows),
    )


@dataclass(frozen=True)
class EpochPlan:
    """All batches of one epoch, over all processes.

    Optimizer step s takes the batches [s * multiple, (s + 1) * multiple); of these, micro-batch a of process r (of w)
    is number s * multiple + a * w + r.

    Args:
        batches: row numbers of every batch.
        multiple: batches in one optimizer step: world size times accumulation.
        step_tokens: int64 [step], real target tokens of every optimizer step.
        tokens: real source and target tokens of the epoch (to be expected, as `step_tokens`, where pieces are drawn).
        padding: share of padding among all tokens of both sides, 0 to 1; where pieces are drawn, that of full batches.
    """

    batches: list[np.ndarray]
    multiple: int
    step_tokens: np.ndarray
    tokens: int
    padding: float

    @property
    def steps(self) -> int:
        return len(self.batches) // self.multiple

    def share(self, rank: int, world_size: int, start_step: int = 0) -> Iterator[tuple[np.ndarray, int]]:
        """The batches of one process in order, from optimizer step `start_step` on, each with its `step_tokens`."""
        for index in range(start_step * self.multiple + rank, len(self.batches), world_size):
            yield self.batches[index], int(self.step_tokens[index // self.multiple])


@dataclass(frozen=True)
class Lengthening:
    """How the lengths of sentences that are cut into pieces anew follow from those of their best pieces: they are about
    `mean` times as long, with a standard deviation of `deviation` times the square root of the length."""

    mean: float
    deviation: float

    @classmethod
    def measured(cls, best: np.ndarray, drawn: np.ndarray) -> "Lengthening":
        """From the lengths of the same sentences, with their best pieces and with drawn ones."""
        mean = float(drawn.sum() / best.sum())
        return cls(mean, float(np.sqrt(np.mean((drawn - mean * best) ** 2 / best))))

    def room(self, lengths: np.ndarray, most: int) -> np.ndarray:
        """Tokens to plan with: two deviations above the mean, but `most` at most where the best pieces are no more."""
        wanted = np.ceil(self.mean * lengths + 2 * self.deviation * np.sqrt(lengths)).astype(np.int64)
        return np.maximum(lengths, np.minimum(wanted, most))


def plan_epoch(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    *,
    batch_tokens: int,
    seed: int,
    epoch: int,
    multiple: int = 1,
    lengthening: tuple[Lengthening, Lengthening] | None = None,
) -> EpochPlan:
    """Every sentence once, in batches of like lengths, in an order drawn from (seed, epoch).

    Args:
        source_lengths: int [sentence], EOS counted.
        target_lengths: int [sentence], EOS counted.
        batch_tokens: what rows times longest source may be, and rows times longest target.
        multiple: the number of batches is a multiple of this (world size times accumulation); to get there the largest
            batches are halved.
        lengthening: of both sides, where sentences are cut into pieces anew: batches then keep room for what is drawn,
            and all counts of tokens are those to be expected.

    Raises:
        InputError: a sentence alone is over the budget, or there are too few sentences for `multiple` batches.
    """
    longest = np.maximum(source_lengths, target_lengths)
    if len(longest) and longest.max() > batch_tokens:
        row = int(longest.argmax())
        raise InputError(
            f"data.batch_tokens={batch_tokens} is too small for row {row} of the prepared training data, which has "
            f"{longest[row]} tokens; give at least that, or a smaller data.max_length"
        )
    random = np.random.default_rng([seed, epoch])
    lengths = room = source_lengths, target_lengths
    if lengthening:
        room = lengthening[0].room(lengths[0], batch_tokens), lengthening[1].room(lengths[1], batch_tokens)
        lengths = lengthening[0].mean * lengths[0], lengthening[1].mean * lengths[1]
    batches = _cut(_by_length(*room, random), *room, batch_tokens)
    batches = _halve_to_multiple(batches, multiple)
    batches = [batches[index] for index in random.permutation(len(batches))]
    return _plan(batches, lengths, room, multiple)


def plan_split(
    source_lengths: np.ndarray, target_lengths: np.ndarray, *, batch_tokens: int, world_size: int = 1
) -> EpochPlan:
    """The plan of an evaluation: `in_order_of_length`, one batch a step, and as many for every process.

    Raises InputError where there are fewer sentences than processes.
    """
    batches = in_order_of_length(source_lengths, target_lengths, batch_tokens)
    if len(batches) % world_size:  # a process without a batch would not come where the others wait for it
        batches = _halve_to_multiple(batches, world_size)
    lengths = source_lengths, target_lengths
    return _plan(batches, lengths, lengths, 1)


def in_order_of_length(source_lengths: np.ndarray, target_lengths: np.ndarray, batch_tokens: int) -> list[np.ndarray]:
    """Row numbers of batches that hold every sentence once, short ones first, nothing random.

    A sentence over the budget is a batch of its own: in an evaluation none may be missing.
    """
    return _cut(np.lexsort((source_lengths, target_lengths)), source_lengths, target_lengths, batch_tokens)


def _by_length(source_lengths: np.ndarray, target_lengths: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Row numbers so sorted that neighbours are alike in both lengths, in another order every epoch.

    Sorted by target, and within one target length by source: up in one, down in the next, so that no batch that
    reaches over the border holds both the shortest and the longest sources.
    """
    target = np.rint(target_lengths + random.uniform(-JITTER, JITTER, len(target_lengths))).astype(np.int64)
    source = source_lengths + random.uniform(-JITTER, JITTER, len(source_lengths))
    return np.lexsort((np.where(target % 2 == 0, source, -source), target))


def _cut(
    order: np.ndarray, source_lengths: np.ndarray, target_lengths: np.ndarray, batch_tokens: int
) -> list[np.ndarray]:
    """Cuts `order` into batches as long as the budget allows (always one row at least); one loop turn a batch."""
    longest = np.maximum(source_lengths, target_lengths)[order]
    batches, start = [], 0
    while start < len(order):
        window = longest[start : start + max(1, batch_tokens // int(longest[start]))]
        # Rows times longest so far only grows, so the last row that fits is found by bisection.
        padded = np.maximum.accumulate(window) * np.arange(1, len(window) + 1)
        rows = max(1, int(np.searchsorted(padded, batch_tokens, side="right")))
        if rows >= MANY and start + rows < len(order):
            rows -= rows % 8
        end = start + rows
        batches.append(order[start:end])
        start = end
    return batches


def _halve_to_multiple(batches: list[np.ndarray], multiple: int) -> list[np.ndarray]:
    wanted = max(1, -(-len(batches) // multiple)) * multiple
    rows = sum(len(batch) for batch in batches)
    if wanted > rows:
        raise InputError(
            f"{rows} pairs are too few for {multiple} batches at once (processes, and in training x accumulation); "
            "give more text, fewer processes or less accumulation"
        )
    # The number breaks ties, so that arrays are never compared.
    heap = [(-len(batch), number, batch) for number, batch in enumerate(batches)]
    heapq.heapify(heap)
    while len(heap) < wanted:
        _, number, batch = heapq.heappop(heap)
        for half, half_number in ((batch[: len(batch) // 2], number), (batch[len(batch) // 2 :], len(heap) + 1)):
            heapq.heappush(heap, (-len(half), half_number, half))
    return [batch for _, _, batch in heap]


def _plan(batches: list[np.ndarray], lengths: Lengths, room: Lengths, multiple: int) -> EpochPlan:
    order = np.concatenate(batches)
    sizes = np.array([len(batch) for batch in batches])
    starts = np.cumsum(sizes) - sizes
    padded = int(sum((sizes * np.maximum.reduceat(side[order], starts)).sum() for side in room))
    tokens = int(sum(side.sum() for side in lengths))
    batch_target = np.add.reduceat(lengths[1][order], starts)
    step_tokens = np.rint(batch_target.reshape(-1, multiple).sum(axis=1)).astype(np.int64)
    return EpochPlan(batches, multiple, step_tokens, tokens, 1 - tokens / padded)


@dataclass
class Epochs:
    """The plans of all epochs of one training split, one after the other, counted in optimizer steps.

    `steps` holds the optimizer steps of the epochs from the first on, as far as they are known.
    """

    source_lengths: np.ndarray
    target_lengths: np.ndarray
    batch_tokens: int
    seed: int
    multiple: int = 1
    lengthening: tuple[Lengthening, Lengthening] | None = None
    steps: list[int] = field(default_factory=list)
    _kept: dict[int, EpochPlan] = field(default_factory=dict, repr=False)

    def plan(self, epoch: int) -> EpochPlan:
        if epoch not in self._kept:
            plan = plan_epoch(
                self.source_lengths,
                self.target_lengths,
                batch_tokens=self.batch_tokens,
                seed=self.seed,
                epoch=epoch,
                multiple=self.multiple,
                lengthening=self.lengthening,
            )
            self._kept = {epoch: plan}  # a walk needs the one it stands in
            if epoch == len(self.steps):
                self.steps.append(plan.steps)
        return self._kept[epoch]

    def steps_of(self, epoch: int) -> int:
        """The optimizer steps of an epoch; no epoch is planned twice for it."""
        while len(self.steps) <= epoch:
            self.plan(len(self.steps))
        return self.steps[epoch]

    def locate(self, step: int) -> tuple[int, int]:
        """The epoch in which optimizer step `step` lies, and its number there; epochs differ a little in length."""
        epoch = 0
        while step >= (steps := self.steps_of(epoch)):
            step -= steps
            epoch += 1
        return epoch, step


Redraw = Callable[[np.ndarray, tuple[int, ...], int], tuple[Sentences, Sentences]]
"""Cuts the sentence pairs of some rows into pieces anew, by a seed; no sentence has more tokens than the last argument
whose best pieces have not. Gives their sources and targets, in that order."""


class TrainStream(IterableDataset[Batch]):
    """The endless training batches of one process from optimizer step `start_step` on.

    draw: cuts the text anew at every epoch. No batch exceeds the budget for it, and `Batch.step_tokens` is what the
        plan expects, the same for all processes. None: the pieces are always those of `source` and `target`.
    """

    def __init__(
        self,
        source: Sentences,
        target: Sentences,
        epochs: Epochs,
        rank: int,
        world_size: int,
        start_step: int,
        draw: Redraw | None = None,
    ) -> None:
        self.draw = draw
        self.source = source
        self.target = target
        self.epochs = epochs
        self.rank = rank
        self.world_size = world_size
        self.start_step = start_step

    def __iter__(self) -> Iterator[Batch]:
        # The loader asks its workers in turn, so every n-th batch from each gives back the one order.
        worker = get_worker_info()
        first, stride = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for epoch, rows, step_tokens in itertools.islice(self._walk(), first, None, stride):
            if self.draw is None:
                yield collate(self.source, self.target, rows, step_tokens)
            else:
                # Each row once an epoch, so the first tells batches apart.
                longest = self.epochs.batch_tokens // len(rows)
                drawn = self.draw(rows, (self.epochs.seed, epoch, int(rows[0])), longest)
                yield collate(*drawn, rows, step_tokens, drawn=True)

    def _walk(self) -> Iterator[tuple[int, np.ndarray, int]]:
        epoch, step = self.epochs.locate(self.start_step)
        while True:
            for rows, step_tokens in self.epochs.plan(epoch).share(self.rank, self.world_size, step):
                yield epoch, rows, step_tokens
            epoch, step = epoch + 1, 0


class SplitBatches(Dataset[Batch]):
    """The batches of one process over a whole split, each sentence once; `step_tokens` is that of the batch."""

    def __init__(self, source: Sentences, target: Sentences, plan: EpochPlan, rank: int, world_size: int) -> None:
        self.source = source
        self.target = target
        self.share = list(plan.share(rank, world_size))

    def __len__(self) -> int:
        return len(self.share)

    def __getitem__(self, index: int) -> Batch:
        return collate(self.source, self.target, *self.share[index])
