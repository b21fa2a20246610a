"""Batch plan: which sentences form which batch of an epoch, in which order, on which process.

The plan is a pure function of lengths, token budget, seed, epoch, and world size times accumulation. So a run resumes
in mid-epoch with the same plan less the batches already used, and one process that accumulates two micro-batches trains
on the same batches as two processes.

Lengths are tokens of source and target with the end of sentence.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from headcount.errors import InputError

Lengths = tuple[np.ndarray, np.ndarray]  # tokens of every source, and of every target
MANY = 128  # rows of a large batch: it is cut to a multiple of 8, since products are compiled for every new shape
JITTER = 1.0  # tokens: random shift of a length before sorting, so that epochs group sentences differently


@dataclass(frozen=True)
class EpochPlan:
    """All batches of one epoch, of all processes.

    Optimizer step s takes the batches [s * batches_per_step, (s + 1) * batches_per_step); of these, micro-batch a of
    process r (of w) is number s * batches_per_step + a * w + r.

    rows: int32 [sentence], the row numbers of every batch, one batch after the other. starts: int64 [batch + 1], where
    each batch begins in `rows`, and the end. batches_per_step: world size times accumulation. step_tokens: int64
    [step], real target tokens of every optimizer step. tokens: real source and target tokens of the epoch. padding:
    share of padding in all tokens of both sides, 0 to 1. With subword sampling, tokens are expected numbers, and
    padding is that of full batches.
    """

    rows: np.ndarray
    starts: np.ndarray
    batches_per_step: int
    step_tokens: np.ndarray
    tokens: int
    padding: float

    @property
    def batches(self) -> list[np.ndarray]:
        """The row numbers of every batch."""
        return np.split(self.rows, self.starts[1:-1])

    @property
    def steps(self) -> int:
        return len(self.step_tokens)

    def share(self, rank: int, world_size: int, start_step: int = 0) -> Iterator[tuple[np.ndarray, int]]:
        """The batches of one process in order, from optimizer step `start_step`, each with its `step_tokens`."""
        for index in range(start_step * self.batches_per_step + rank, len(self.starts) - 1, world_size):
            rows = self.rows[self.starts[index] : self.starts[index + 1]]
            yield rows, int(self.step_tokens[index // self.batches_per_step])


@dataclass(frozen=True)
class Lengthening:
    """Lengths with subword sampling, relative to the lengths of the best segmentations: the mean is `mean` times as
    long, the standard deviation is `deviation` times the square root of the length."""

    mean: float
    deviation: float

    @classmethod
    def measured(cls, best: np.ndarray, sampled: np.ndarray) -> "Lengthening":
        """From the lengths of the same sentences with the best and with sampled segmentations."""
        mean = float(sampled.sum() / best.sum())
        return cls(mean, float(np.sqrt(np.mean((sampled - mean * best) ** 2 / best))))

    def expected_lengths(self, lengths: np.ndarray, most: int) -> np.ndarray:
        """An upper estimate of the sampled lengths: mean + 2 standard deviations, capped at `most`, but never below the
        length without sampling."""
        wanted = np.ceil(self.mean * lengths + 2 * self.deviation * np.sqrt(lengths)).astype(np.int64)
        return np.maximum(lengths, np.minimum(wanted, most))


def plan_split(
    source_lengths: np.ndarray, target_lengths: np.ndarray, *, batch_tokens: int, world_size: int = 1
) -> EpochPlan:
    """The plan of an evaluation: `in_order_of_length`, one batch a step, the same number for every process.

    Raises InputError if there are fewer sentences than processes.
    """
    batches = in_order_of_length(source_lengths, target_lengths, batch_tokens)
    if len(batches) % world_size:  # the other processes would wait for one without a batch
        batches = _halve_to_multiple(batches, world_size)
    lengths = source_lengths, target_lengths
    return _plan(batches, lengths, lengths, 1)


def in_order_of_length(source_lengths: np.ndarray, target_lengths: np.ndarray, batch_tokens: int) -> list[np.ndarray]:
    """Row numbers of batches with every sentence once, short sentences first, without randomness.

    A sentence over the budget is a batch by itself, since an evaluation needs every sentence.
    """
    return _cut(np.lexsort((source_lengths, target_lengths)), source_lengths, target_lengths, batch_tokens)


def _by_length(source: np.ndarray, target: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Row numbers sorted by target length, and by source length within one target length, in another order every epoch.

    The source lengths go upwards within one target length, downwards within the next, so that a batch with two
    neighbouring target lengths does not have both the shortest and the longest sources.
    """
    whole = np.rint(target + random.uniform(-JITTER, JITTER, len(target))).astype(np.int32)
    other = source + random.uniform(-JITTER, JITTER, len(source))
    return np.lexsort((np.where(whole % 2, -other, other), whole))


def _cut(
    order: np.ndarray, source_lengths: np.ndarray, target_lengths: np.ndarray, batch_tokens: int
) -> list[np.ndarray]:
    """Cut `order` into batches as large as the budget allows (at least one row); one iteration a batch."""
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
    """The batches, the largest of them halved until their number is a multiple."""
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


def _plan(batches: list[np.ndarray], lengths: Lengths, padded: Lengths, batches_per_step: int) -> EpochPlan:
    order = np.concatenate(batches)
    sizes = np.array([len(batch) for batch in batches])
    starts = np.cumsum([0, *sizes], dtype=np.int64)
    in_batches = int(sum((sizes * np.maximum.reduceat(side[order], starts[:-1])).sum() for side in padded))
    tokens = int(sum(side.sum() for side in lengths))
    batch_target = np.add.reduceat(lengths[1][order], starts[:-1])
    step_tokens = np.rint(batch_target.reshape(-1, batches_per_step).sum(axis=1)).astype(np.int64)
    return EpochPlan(order.astype(np.int32), starts, batches_per_step, step_tokens, tokens, 1 - tokens / in_batches)


@dataclass
class Epochs:
    """The plans of all epochs of one training split, counted in optimizer steps.

    source_lengths, target_lengths: int [sentence], with EOS. batch_tokens: most rows times longest source, and most
    rows times longest target. batches_per_step: the number of batches is a multiple of it; the largest batches are
    halved until it is. lengthening: of both sides, with subword sampling, from `start_epoch` on: batches then have room
    for sampled segmentations, and token counts are expected numbers. steps: the optimizer steps of the epochs that have
    been planned.
    """

    source_lengths: np.ndarray
    target_lengths: np.ndarray
    batch_tokens: int
    seed: int
    batches_per_step: int = 1
    lengthening: tuple[Lengthening, Lengthening] | None = None
    start_epoch: int = 0
    steps: dict[int, int] = field(default_factory=dict, repr=False)
    _kept: dict[int, EpochPlan] = field(default_factory=dict, repr=False)

    def plan(self, epoch: int) -> EpochPlan:
        """Every sentence once, in batches of similar lengths, in an order that (seed, epoch) determines. The last plan
        is kept.

        Raises InputError if one sentence exceeds the budget, or if there are too few sentences for one step.
        """
        if epoch not in self._kept:
            self._kept = {epoch: self._planned(epoch)}
            self.steps[epoch] = self._kept[epoch].steps
        return self._kept[epoch]

    def _planned(self, epoch: int) -> EpochPlan:
        longest = np.maximum(self.source_lengths, self.target_lengths)
        if len(longest) and longest.max() > self.batch_tokens:
            row = int(longest.argmax())
            raise InputError(
                f"data.batch_tokens={self.batch_tokens} is too small for row {row} of the prepared training data, "
                f"which has {longest[row]} tokens; give at least that, or a smaller data.max_length"
            )
        lengths = padded = self.source_lengths, self.target_lengths
        if self.lengthening and epoch >= self.start_epoch:
            one, other = self.lengthening
            most = self.batch_tokens
            padded = one.expected_lengths(lengths[0], most), other.expected_lengths(lengths[1], most)
            lengths = one.mean * lengths[0], other.mean * lengths[1]
        random = np.random.default_rng([self.seed, epoch])
        batches = _cut(_by_length(*padded, random), *padded, self.batch_tokens)
        batches = _halve_to_multiple(batches, self.batches_per_step)
        batches = [batches[index] for index in random.permutation(len(batches))]
        return _plan(batches, lengths, padded, self.batches_per_step)

    def steps_of(self, epoch: int) -> int:
        """The optimizer steps of an epoch. Each epoch is planned only once."""
        return self.steps[epoch] if epoch in self.steps else self.plan(epoch).steps

    def locate(self, step: int) -> tuple[int, int]:
        """The epoch of optimizer step `step`, and its number in this epoch; epochs differ a little in length."""
        epoch = 0
        while step >= (steps := self.steps_of(epoch)):
            step -= steps
            epoch += 1
        return epoch, step
