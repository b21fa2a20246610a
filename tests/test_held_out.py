"""Held-out pairs: a function of the pairs and the seed alone."""

import itertools
import random
from collections import Counter

import pytest

from headcount.data.corpora import held_out
from headcount.data.corpora.corpus import pairs_of
from headcount.data.corpora.held_out import HeldOut
from headcount.data.tokenizer import normalise
from headcount.errors import InputError

TRAIN = [(f"source {row}", f"target {row % 70}") for row in range(200)]


def cut(rows, max_pairs=None, **settings):
    """The splits as lists of tuples."""
    train = pairs_of(*zip(*rows, strict=True))
    splits = HeldOut({"seed": 1, **settings}, max_pairs).cut({"train": train})
    return {name: [tuple(pair.values()) for pair in part.to_list()] for name, part in splits.items()}


def test_each_pair_lands_in_one_split_and_train_keeps_its_order():
    splits = cut(TRAIN, valid=30, test=20)
    assert {name: len(part) for name, part in splits.items()} == {"train": 150, "valid": 30, "test": 20}
    assert Counter(itertools.chain(*splits.values())) == Counter(TRAIN)
    assert splits["train"] == [pair for pair in TRAIN if pair in set(splits["train"])]


@pytest.mark.parametrize("chunk", [7, 1000])
def test_neither_order_nor_chunks_nor_repetition_change_what_is_held_out(monkeypatch, chunk):
    expected = cut(TRAIN, valid=30, test=20)
    monkeypatch.setattr(held_out, "CHUNK", chunk)
    rows = TRAIN * 3
    random.Random(1).shuffle(rows)
    splits = cut(rows, valid=30, test=20)
    assert (splits["valid"], splits["test"]) == (expected["valid"], expected["test"])
    assert Counter(splits["train"]) == Counter(expected["train"] * 3)  # and no copy of what is held out


def test_other_sizes_and_seeds():
    test = cut(TRAIN, test=20)["test"]
    assert cut(TRAIN, valid=5, test=20)["test"] == cut(TRAIN, valid=50, test=20)["test"] == test
    assert cut(TRAIN, test=30)["test"][:20] == test
    assert cut(TRAIN, test=20, seed=1)["test"] == test
    assert len(set(cut(TRAIN, test=20, seed=2)["test"]) & set(test)) < 10
    # Drawn from everywhere: the mean of 20 of the rows 0 to 199 is far from 100 once in many thousands.
    rows = [TRAIN.index(pair) for pair in test]
    assert 45 < sum(rows) / len(rows) < 155


def test_a_pair_that_is_half_empty_is_left_to_the_cleaning_of_train():
    rows = [("", "a"), ("b", " "), *TRAIN] * 2
    splits = cut(rows, test=199)
    assert Counter(splits["train"]) == Counter(
        [("", "a"), ("b", " "), next(iter(set(TRAIN) - set(splits["test"])))] * 2
    )


def test_all_pairs_of_a_source_leave_train_together_however_it_is_spelled():
    variants = (str, "  {} ".format, lambda text: text.replace(" ", "\t"), lambda text: text.replace("ä", "a\u0308"))
    each = list(enumerate(variants))
    rows = [(vary(f"Sätze {row}"), vary(f"target {row} {number // 2}")) for row in range(60) for number, vary in each]
    splits = cut(rows, valid=10, test=15)
    normal = {name: [normalise(source) for source, _ in part] for name, part in splits.items()}
    assert (len(set(normal["valid"])), len(set(normal["test"]))) == (10, 15)
    assert len(set(normal["train"]) | set(normal["valid"]) | set(normal["test"])) == 60
    assert len(splits["train"]) == 4 * (60 - 10 - 15)
    assert {*splits["valid"], *splits["test"]} < set(rows)
    random.Random(1).shuffle(rows)
    again = cut(rows, valid=10, test=15)
    assert (again["valid"], again["test"]) == (splits["valid"], splits["test"])


def test_without_sizes_nothing_happens():
    for settings in (None, {}, {"valid": None, "seed": 3}):
        assert cut(TRAIN, **settings or {}) == {"train": TRAIN}
        assert HeldOut(settings, None).settings == {"held_out": [], "max_pairs": None}


@pytest.mark.parametrize("size", [200, 201, 1000])
def test_more_than_there_is(size):
    with pytest.raises(InputError, match=rf"data.held_out.test={size}: too much for the train split, which has 400 pa"):
        cut(TRAIN * 2, test=size)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"valid": 0}, "data.held_out.valid=0: must be greater than or equal to 1 or null"),
        ({"test": 0.1}, "data.held_out.test=0.1: must be a valid integer"),
        ({"test": True}, "data.held_out.test=true: must be a valid integer"),
        ({"seed": None}, "data.held_out.seed=null: must be a valid integer"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(InputError, match=message):
        HeldOut(settings, None)


@pytest.mark.parametrize(("count", "rows"), [(5, 5), (200, 200), (300, 200), (None, 200)])
def test_the_first_pairs(count, rows):
    assert cut(TRAIN, count) == {"train": TRAIN[:rows]}
