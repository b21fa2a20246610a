"""Batch plan: which sentences form which batch of an epoch, in which order, on which process.

The plan is a pure function of lengths, token budget, seed, epoch, and world size times accumulation; with a batch ramp
also of the step at which the epoch begins. So a run resumes in mid-epoch with the same plan less the batches already
used, and one process that accumulates two micro-batches trains on the same batches as two processes.

Lengths are tokens of source and target with the end of sentence.
"""

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from headcount.data.shared import remove, remove_older, shared_arrays
from headcount.errors import InputError

Lengths = tuple[np.ndarray, np.ndarray]  # tokens of every source, and of every target
MANY = 128  # rows of a large batch: it is cut to a multiple of 8, since products are compiled for every new shape
ONE_DAY = 86_400  # seconds after which a shared plan is no longer kept for others
JITTER = 1.0  # tokens: random shift of a length before sorting, so that epochs group sentences differently


def round_up(length: Any, multiple: int) -> Any:
    """The least multiple that is not below a length, or each of several."""
    return length if multiple == 1 else -(-length // multiple) * multiple


@dataclass(frozen=True)
class EpochPlan:
    """All batches of one epoch, of all processes.

    Optimizer step s takes the batches [s * multiple, (s + 1) * multiple); of these, micro-batch a of process r (of w)
    is number s * multiple + a * w + r.

    rows: int [sentence], the row numbers of every batch, one batch after the other. starts: int64 [batch + 1], where
    each batch begins in `rows`, and the end. multiple: batches in one optimizer step: world size times accumulation.
    step_tokens: int64 [step], real target tokens of every optimizer step. tokens: real source and target tokens of the
    epoch. padding: share of padding in all tokens of both sides, 0 to 1. With subword sampling, tokens are expected
    numbers, and padding is that of full batches.
    """

    rows: np.ndarray
    starts: np.ndarray
    multiple: int
    step_tokens: np.ndarray
    tokens: int
    padding: float

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "EpochPlan":
        """The plan whose fields are `arrays`, as the method of that name gives them."""
        numbers = {name: arrays[name].item() for name in ("multiple", "tokens", "padding")}
        return cls(**{**arrays, **numbers})

    def arrays(self) -> dict[str, np.ndarray]:
        """The plan as arrays by name, to be kept in files."""
        return {each.name: np.asarray(getattr(self, each.name)) for each in fields(self)}

    @property
    def batches(self) -> list[np.ndarray]:
        """The row numbers of every batch."""
        return np.split(self.rows, self.starts[1:-1])

    @property
    def steps(self) -> int:
        return len(self.step_tokens)

    def share(self, rank: int, world_size: int, start_step: int = 0) -> Iterator[tuple[np.ndarray, int]]:
        """The batches of one process in order, from optimizer step `start_step`, each with its `step_tokens`."""
        for index in range(start_step * self.multiple + rank, len(self.starts) - 1, world_size):
            rows = self.rows[self.starts[index] : self.starts[index + 1]]
            yield rows, int(self.step_tokens[index // self.multiple])


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

    def room(self, lengths: np.ndarray, most: int) -> np.ndarray:
        """Tokens to plan with: two deviations above the mean, at most `most` unless the best segmentation has more."""
        wanted = np.ceil(self.mean * lengths + 2 * self.deviation * np.sqrt(lengths)).astype(np.int64)
        return np.maximum(lengths, np.minimum(wanted, most))


@dataclass(frozen=True)
class BatchRamp:
    """Batch ramp: the batch of an optimizer step grows linearly over `steps` optimizer steps, from the share `start` of
    a full batch to all of it. Brown et al. 2020, "Language models are few-shot learners", appendix B.

    Raises ValueError for less than one step, and a share that is not above 0 and at most 1.
    """

    steps: int
    start: float

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"data.batch_ramp={self.steps}: must be 1 or more optimizer steps, or null or 0 for none")
        if not 0 < self.start <= 1:
            raise ValueError(f"data.batch_ramp_start={self.start}: must be above 0 and at most 1, such as 0.25")

    def __str__(self) -> str:
        return f"from {self.start:g} of a batch over {self.steps:,} steps"

    def parts(self, step: int) -> int:
        """Optimizer steps that share a full batch at optimizer step `step`."""
        return max(1, round(1 / (self.start + (1 - self.start) * min(1, step / self.steps))))

    def split(self, batches: list[np.ndarray], multiple: int, step: int) -> list[np.ndarray]:
        """The batches of an epoch that begins at optimizer step `step`, the early ones in parts.

        The `multiple` batches of one step are cut into as many parts each, for as many steps: into fewer than `parts`
        where one of them has fewer rows.
        """
        cut: list[np.ndarray] = []
        for first in range(0, len(batches), multiple):
            together = batches[first : first + multiple]
            parts = min(self.parts(step + len(cut) // multiple), *map(len, together))
            for each in zip(*(np.array_split(rows, parts) for rows in together), strict=True):
                cut += each
        return cut


def plan_epoch(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    *,
    batch_tokens: int,
    seed: int,
    epoch: int,
    multiple: int = 1,
    lengthening: tuple[Lengthening, Lengthening] | None = None,
    ramp: BatchRamp | None = None,
    first_step: int = 0,
    pad_to: int = 1,
) -> EpochPlan:
    """Every sentence once, in batches of similar lengths, in an order that (seed, epoch) determines.

    source_lengths, target_lengths: int [sentence], with EOS. batch_tokens: most rows times longest source, and most
    rows times longest target. multiple: the number of batches is a multiple of this number (world size times
    accumulation); the largest batches are halved until it is. lengthening: of both sides, with subword sampling:
    batches then have room for sampled segmentations, and token counts are expected numbers. ramp: cuts the batches of
    early steps; first_step: the optimizer step at which the epoch begins, which only a ramp depends on. pad_to: a
    batch is padded to a multiple of so many tokens on either side.
    Raises InputError if one sentence exceeds the budget, or if there are too few sentences for `multiple` batches.
    """
    _check_room(source_lengths, target_lengths, batch_tokens, pad_to)
    random = np.random.default_rng([seed, epoch])
    lengths = room = source_lengths, target_lengths
    if lengthening:
        room = lengthening[0].room(lengths[0], batch_tokens), lengthening[1].room(lengths[1], batch_tokens)
        lengths = lengthening[0].mean * lengths[0], lengthening[1].mean * lengths[1]
    if few_batches(source_lengths, target_lengths, batch_tokens):
        order = _by_length(room[0] - room[1], np.maximum(*room), random)
    else:
        order = _by_length(*room, random)
    room = round_up(room[0], pad_to), round_up(room[1], pad_to)
    batches = _cut(order, *room, batch_tokens)
    batches = _halve_to_multiple(batches, multiple)
    batches = [batches[index] for index in random.permutation(len(batches))]
    if ramp:
        batches = ramp.split(batches, multiple, first_step)
    return _plan(batches, lengths, room, multiple)


def _check_room(source_lengths: np.ndarray, target_lengths: np.ndarray, batch_tokens: int, pad_to: int) -> None:
    longest = np.maximum(source_lengths, target_lengths)
    if len(longest) and round_up(longest.max(), pad_to) > batch_tokens:
        row = int(longest.argmax())
        raise InputError(
            f"data.batch_tokens={batch_tokens} is too small for row {row} of the prepared training data, which has "
            f"{longest[row]} tokens; give at least that, or a smaller data.max_length"
        )


def plan_split(
    source_lengths: np.ndarray, target_lengths: np.ndarray, *, batch_tokens: int, world_size: int = 1, pad_to: int = 1
) -> EpochPlan:
    """The plan of an evaluation: `in_order_of_length`, one batch a step, the same number for every process.

    pad_to: as in `plan_epoch`.

    Raises InputError if there are fewer sentences than processes.
    """
    room = round_up(source_lengths, pad_to), round_up(target_lengths, pad_to)
    batches = in_order_of_length(*room, batch_tokens)
    if len(batches) % world_size:  # the other processes would wait for one without a batch
        batches = _halve_to_multiple(batches, world_size)
    return _plan(batches, (source_lengths, target_lengths), room, 1)


def in_order_of_length(source_lengths: np.ndarray, target_lengths: np.ndarray, batch_tokens: int) -> list[np.ndarray]:
    """Row numbers of batches with every sentence once, short sentences first, without randomness.

    A sentence over the budget is a batch by itself, since an evaluation needs every sentence.
    """
    return _cut(np.lexsort((source_lengths, target_lengths)), source_lengths, target_lengths, batch_tokens)


def few_batches(source_lengths: np.ndarray, target_lengths: np.ndarray, batch_tokens: int) -> bool:
    """Whether batches are large, of `MANY` sentences and more, and an epoch has fewer of them than its longest sentence
    has tokens, so that a batch has sentences of several lengths.

    Such an epoch is sorted by the longer side of each pair, which counts for the budget, else by the target: of
    Multi30k in batches of 25,600 tokens, 14% is padding so, and 19% the other way.
    """
    longest = np.maximum(source_lengths, target_lengths)
    most = int(longest.max(initial=0))
    return 0 < most * MANY <= batch_tokens and int(longest.sum()) < batch_tokens * most


def _by_length(second: np.ndarray, first: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Row numbers sorted by two lengths, in another order every epoch.

    They are sorted by the first, and within one first length by the second: upwards in one, downwards in the next, so
    that a batch with two neighbouring first lengths does not have both the least and the greatest second ones.
    """
    # In place, since this takes the most memory of all that grows with the corpus.
    jittered = random.uniform(-JITTER, JITTER, len(first))
    jittered += first
    whole = np.rint(jittered, out=jittered).astype(np.int32)
    other = random.uniform(-JITTER, JITTER, len(second))
    other += second
    np.negative(other, out=other, where=whole % 2 != 0)
    del jittered
    return np.lexsort((other, whole))


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
    starts = np.cumsum([0, *sizes], dtype=np.int64)
    padded = int(sum((sizes * np.maximum.reduceat(side[order], starts[:-1])).sum() for side in room))
    tokens = int(sum(side.sum() for side in lengths))
    batch_target = np.add.reduceat(lengths[1][order], starts[:-1])
    step_tokens = np.rint(batch_target.reshape(-1, multiple).sum(axis=1)).astype(np.int64)
    rows = order.astype(np.int32 if len(order) < 2**31 else np.int64, copy=False)
    return EpochPlan(rows, starts, multiple, step_tokens, tokens, 1 - tokens / padded)


@dataclass
class Epochs:
    """The plans of all epochs of one training split, counted in optimizer steps.

    lengthening: with subword sampling, see `plan_epoch`; epochs before `start_epoch` have none. ramp: see `BatchRamp`.
    pad_to: see `plan_epoch`. shared: a folder and the beginning of the names in it, where the processes that train
    share the plans, see `shared_arrays`; None: each plans for itself. steps: the optimizer steps of the first epochs,
    as far as they have been planned.
    """

    source_lengths: np.ndarray
    target_lengths: np.ndarray
    batch_tokens: int
    seed: int
    multiple: int = 1
    lengthening: tuple[Lengthening, Lengthening] | None = None
    start_epoch: int = 0
    ramp: BatchRamp | None = None
    pad_to: int = 1
    shared: tuple[Path, str] | None = None
    steps: list[int] = field(default_factory=list)
    _kept: dict[int, EpochPlan] = field(default_factory=dict, repr=False)

    def plan(self, epoch: int) -> EpochPlan:
        if epoch not in self._kept:
            if self.ramp and epoch:
                self.steps_of(epoch - 1)  # the ramp asks at which step the epoch begins
            plan = self._shared(self.shared, epoch) if self.shared else self._planned(epoch)
            self._kept = {epoch: plan}  # only the plan of the current epoch is needed
            if epoch == len(self.steps):
                self.steps.append(plan.steps)
        return self._kept[epoch]

    def _shared(self, shared: tuple[Path, str], epoch: int) -> EpochPlan:
        folder, name = shared
        remove_older(folder, ONE_DAY)  # plans of other runs
        remove(folder / f"{name}-{epoch - 2}")  # a process may still need that before this
        return EpochPlan.from_arrays(shared_arrays(folder / f"{name}-{epoch}", lambda: self._planned(epoch).arrays()))

    def _planned(self, epoch: int) -> EpochPlan:
        return plan_epoch(
            self.source_lengths,
            self.target_lengths,
            batch_tokens=self.batch_tokens,
            seed=self.seed,
            epoch=epoch,
            multiple=self.multiple,
            lengthening=self.lengthening if epoch >= self.start_epoch else None,
            ramp=self.ramp,
            first_step=sum(self.steps[:epoch]),
            pad_to=self.pad_to,
        )

    def steps_of(self, epoch: int) -> int:
        """The optimizer steps of an epoch. Each epoch is planned only once."""
        while len(self.steps) <= epoch:
            self.plan(len(self.steps))
        return self.steps[epoch]

    def locate(self, step: int) -> tuple[int, int]:
        """The epoch of optimizer step `step`, and its number in this epoch; epochs differ a little in length."""
        epoch = 0
        while step >= (steps := self.steps_of(epoch)):
            step -= steps
            epoch += 1
        return epoch, step
