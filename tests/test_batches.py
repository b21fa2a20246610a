import numpy as np
import pytest
import torch

from headcount.data.batches import Batch, Sentences, collate
from headcount.data.batching import Epochs, Lengthening, in_order_of_length, plan_split
from headcount.data.tokenizer import BOS, EOS, PAD
from headcount.errors import InputError


def lengths(count, seed=0):
    """Lengths of sentence pairs as they are: skewed, and alike on both sides."""
    draw = np.random.default_rng(seed)
    source = 2 + draw.poisson(draw.gamma(4, 3, count))
    return source, np.maximum(1, np.rint(source * draw.normal(1.1, 0.15, count))).astype(int)


def plan_epoch(source, target, *, epoch, **settings):
    return Epochs(source, target, **settings).plan(epoch)


def same(one, other):
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


# Hand-made: row i of three pieces is 10 i + 0, 1, 2.
IDS = [[10 * row + i for i in range(n)] for row, n in enumerate([2, 0, 3])]


def test_a_batch_by_hand():
    source, target = Sentences.of(IDS), Sentences.of([[7], [8, 9], []])
    assert source.lengths.tolist() == [3, 1, 4]
    batch = collate(source, target, np.array([2, 0, 1]), step_tokens=99)
    assert batch.source.tolist() == [[20, 21, 22, EOS], [0, 1, EOS, PAD], [EOS, PAD, PAD, PAD]]
    assert batch.source_mask.tolist() == [[True] * 4, [True] * 3 + [False], [True] + [False] * 3]
    assert batch.target_in.tolist() == [[BOS, PAD, PAD], [BOS, 7, PAD], [BOS, 8, 9]]
    assert batch.target_out.tolist() == [[EOS, PAD, PAD], [7, EOS, PAD], [8, 9, EOS]]
    assert batch.real.tolist() == [0, 3, 4, 6, 7, 8]
    assert batch.rows.tolist() == [2, 0, 1]
    assert (batch.step_tokens, batch.tokens, batch.has_padding) == (99, 8 + 6, True)
    assert not collate(source, target, np.array([2]), step_tokens=1).has_padding


def test_a_batch_goes_to_a_device():
    sentences = Sentences.of(IDS)
    batch = collate(sentences, sentences, np.arange(3), step_tokens=5)
    assert equal(batch.to("cpu"), batch)
    moved = {name: value for name, value in vars(batch.to("meta")).items() if isinstance(value, torch.Tensor)}
    assert {name for name, tensor in moved.items() if tensor.device.type != "meta"} == {"rows"}


@pytest.mark.parametrize("multiple", [1, 2, 3, 8])
@pytest.mark.parametrize("batch_tokens", [100, 512])
def test_every_row_once_within_budget_and_a_multiple(batch_tokens, multiple):
    source, target = lengths(3000)
    plan = plan_epoch(source, target, batch_tokens=batch_tokens, seed=1, epoch=4, batches_per_step=multiple)
    assert sorted(np.concatenate(plan.batches)) == list(range(3000))
    for rows in plan.batches:
        assert len(rows) > 0
        assert len(rows) * max(source[rows].max(), target[rows].max()) <= batch_tokens
    assert len(plan.batches) == plan.steps * multiple
    by_hand = [
        sum(target[rows].sum() for rows in plan.batches[step * multiple : (step + 1) * multiple])
        for step in range(plan.steps)
    ]
    assert plan.step_tokens.tolist() == by_hand
    assert plan.tokens == source.sum() + target.sum()
    padded = sum(len(rows) * (source[rows].max() + target[rows].max()) for rows in plan.batches)
    assert plan.padding == pytest.approx(1 - plan.tokens / padded)


def test_sizes_by_hand():
    # In order of length 1 2 2 3 5 8 with a budget of 8: 1 2 2 (3 x 2 = 6, a fourth would make 4 x 3 = 12), 3, 5, 8.
    source = np.array([8, 2, 5, 1, 3, 2])
    batches = in_order_of_length(source, np.ones(6, dtype=int), batch_tokens=8)
    assert [sorted(source[rows]) for rows in batches] == [[1, 2, 2], [3], [5], [8]]
    # The longer side decides, whichever it is.
    assert [len(rows) for rows in in_order_of_length(np.array([1, 1, 1, 1]), np.array([4, 4, 4, 4]), 8)] == [2, 2]


def test_the_plan_is_a_pure_function():
    source, target = lengths(2000)
    settings = {"batch_tokens": 256, "seed": 1, "epoch": 3, "batches_per_step": 2}
    plan = plan_epoch(source, target, **settings)
    np.random.seed(5)  # nobody's global state matters
    assert same(plan.batches, plan_epoch(source.copy(), target.copy(), **settings).batches)
    for other in ({"seed": 2}, {"epoch": 4}):
        assert not same(plan.batches, plan_epoch(source, target, **{**settings, **other}).batches)


def test_epochs_group_sentences_differently():
    source, target = lengths(20_000)
    first, second = np.empty(20_000, dtype=int), np.empty(20_000, dtype=int)
    for epoch, labels in enumerate((first, second)):
        plan = plan_epoch(source, target, batch_tokens=1024, seed=1, epoch=epoch)
        for number, rows in enumerate(plan.batches):
            labels[rows] = number
        sizes = np.array([len(rows) for rows in plan.batches])
    _, together = np.unique(first * 10_000 + second, return_counts=True)
    assert (together**2).sum() < 0.2 * (sizes**2).sum()


def test_expected_lengths_of_sampled_segmentations_by_hand():
    half_longer = Lengthening.measured(np.array([4, 4]), np.array([4, 8]))
    assert half_longer == Lengthening(mean=1.5, deviation=1.0)
    # 1.5 n + 2 sqrt(n): 10, 19.5 and 32, of which 20 are allowed; the last is longer even without sampling.
    assert half_longer.expected_lengths(np.array([4, 9, 16, 25]), most=20).tolist() == [10, 20, 20, 25]


def test_a_plan_for_sampled_segmentations_counts_expected_tokens():
    source, target = lengths(1000)
    longer = Lengthening(1.5, 0.0), Lengthening(2.0, 0.0)
    plan = plan_epoch(source, target, batch_tokens=512, seed=1, epoch=0, lengthening=longer)
    assert plan.tokens == int(1.5 * source.sum()) + 2 * target.sum()
    assert plan.step_tokens.sum() == 2 * target.sum()
    for rows in plan.batches:
        assert len(rows) * max(np.ceil(1.5 * source[rows]).max(), 2 * target[rows].max()) <= 512
    assert len(plan.batches) < 1.3 * 2 * target.sum() / 512


@pytest.mark.parametrize(("world_size", "accumulation"), [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1)])
def test_shares_of_all_processes_make_the_plan(world_size, accumulation):
    source, target = lengths(2000)
    multiple = world_size * accumulation
    plan = plan_epoch(source, target, batch_tokens=256, seed=1, epoch=0, batches_per_step=multiple)
    shares = [list(plan.share(rank, world_size)) for rank in range(world_size)]
    for rank, share in enumerate(shares):
        assert len(share) == plan.steps * accumulation
        for position, (rows, step_tokens) in enumerate(share):
            step, micro_batch = divmod(position, accumulation)
            assert np.array_equal(rows, plan.batches[step * multiple + micro_batch * world_size + rank])
            assert step_tokens == plan.step_tokens[step]
        late = list(plan.share(rank, world_size, start_step=3))
        assert same([rows for rows, _ in late], [rows for rows, _ in share[3 * accumulation :]])


@pytest.mark.parametrize(("count", "multiple"), [(5, 8), (0, 1), (5, 4)])
def test_too_few_sentences(count, multiple):
    # 5 sentences that fill a batch each cannot be 4 batches within budget, nor 8 that are not empty.
    tens = np.full(count, 10)
    with pytest.raises(InputError, match=rf"{count} pairs are too few for {multiple} batches at once"):
        plan_epoch(tens, tens, batch_tokens=10, seed=1, epoch=0, batches_per_step=multiple)


def test_a_sentence_over_the_budget_is_named_in_training_and_alone_in_evaluation():
    source, target = np.array([4, 50, 4]), np.array([4, 60, 4])
    with pytest.raises(InputError, match=r"data\.batch_tokens=40 is too small for row 1 .* 60 tokens"):
        plan_epoch(source, target, batch_tokens=40, seed=1, epoch=0)
    assert [rows.tolist() for rows in plan_split(source, target, batch_tokens=40).batches] == [[0, 2], [1]]


def equal(one: Batch, other: Batch) -> bool:
    return all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
        for a, b in zip(vars(one).values(), vars(other).values(), strict=True)
    )


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_every_process_has_its_batches_of_an_evaluation(world_size):
    lengths = np.array([3, 4, 5, 6, 7, 8, 9, 10])
    plan = plan_split(lengths, lengths, batch_tokens=30, world_size=world_size)
    shares = [[rows for rows, _ in plan.share(rank, world_size)] for rank in range(world_size)]
    assert len({len(share) for share in shares}) == 1
    assert sorted(np.concatenate([rows for share in shares for rows in share])) == list(range(8))


@pytest.mark.parametrize(("budget", "rows"), [(127, 127), (128, 128), (129, 128), (135, 128), (136, 136)])
def test_large_batches_are_cut_to_a_multiple_of_eight_and_the_last_one_is_whole(budget, rows):
    ones = np.ones(400, dtype=int)
    cut = [len(batch) for batch in in_order_of_length(ones, ones, budget)]
    assert set(cut[:-1]) == {rows}
    assert cut[-1] == 400 - rows * (len(cut) - 1)
