"""Held-out pairs: a function of the pairs and the seed alone."""

import itertools
import random
from collections import Counter

import pytest
from datasets import Dataset

from headcount.data.corpora import held_out
from headcount.data.corpora.held_out import HeldOut
from headcount.data.tokenizer import normalise
from headcount.errors import InputError

TRAIN = [(f"source {row}", f"target {row % 70}") for row in range(200)]


def pairs(rows):
    """A split of these rows."""
    sources, targets = zip(*rows, strict=True)
    return Dataset.from_dict({"source": sources, "target": targets})


def cut(rows, **settings):
    """The splits as lists of tuples."""
    splits = HeldOut({"seed": 1, **settings}, None).cut({"train": pairs(rows)})
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


def test_all_pairs_of_a_source_leave_train_together():
    rows = [(f"source {row % 50}", f"target {row}") for row in range(200)]  # four translations each
    splits = cut(rows, valid=10, test=15)
    sources = {name: [source for source, _ in part] for name, part in splits.items()}
    assert len(set(sources["valid"])) == 10
    assert len(set(sources["test"])) == 15
    assert not set(sources["test"]) & set(sources["valid"])
    assert len(splits["train"]) == 200 - 25 * 4
    assert not set(sources["train"]) & {*sources["valid"], *sources["test"]}
    assert {*splits["valid"], *splits["test"]} < set(rows)


def test_sources_that_the_tokenizer_normalises_alike_are_one():
    variants = (str, "  {} ".format, lambda text: text.replace(" ", "\t"), lambda text: text.replace("ä", "a\u0308"))
    rows = [(vary(f"Sätze {row}"), vary(f"target {row}")) for row in range(60) for vary in variants]
    splits = cut(rows, valid=15, test=15)
    normal = {name: [normalise(source) for source, _ in part] for name, part in splits.items()}
    assert len(set(normal["test"])) == len(set(normal["valid"])) == 15
    assert not set(normal["test"]) & set(normal["valid"])
    assert not set(normal["train"]) & {*normal["valid"], *normal["test"]}
    random.Random(1).shuffle(rows)
    again = cut(rows, valid=15, test=15)
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
        ({"valid": 0}, "data.held_out.valid=0: must be a whole number, of pairs 1 or more"),
        ({"test": 0.1}, "data.held_out.test=0.1: must be a whole number"),
        ({"test": True}, "data.held_out.test=True: must be a whole number"),
        ({"seed": None}, "data.held_out.seed=None: must be a whole number"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        HeldOut(settings, None)


@pytest.mark.parametrize(("count", "rows"), [(5, 5), (200, 200), (300, 200), (None, 200)])
def test_the_first_pairs(count, rows):
    part = HeldOut(None, count).cut({"train": pairs(TRAIN)})["train"]
    assert [tuple(pair.values()) for pair in part.to_list()] == TRAIN[:rows]
