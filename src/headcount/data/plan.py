"""The batch plan of an epoch: which sentences form a batch, in what order, on which process.

It is a pure function of lengths, token budget, seed, epoch, and world size times accumulation.
So resuming in mid-epoch is: the same plan, less the batches already consumed; and one process that accumulates two
micro-batches sees what two processes see.

Lengths here are tokens with the end of sentence counted, in the source as in the target.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from headcount.errors import InputError

Lengths = tuple[np.ndarray, np.ndarray]  # tokens of every source and of every target
MANY = 128  # rows from which a batch is cut to a multiple of 8: products are compiled anew for every new shape
JITTER = 1.0  # tokens: how far a length is moved before sorting, so that epochs group sentences differently


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
