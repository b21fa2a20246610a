import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from datasets import Dataset, DatasetDict

from headcount.data import preparation
from headcount.data.cleaning import Cleaning, CleaningReport
from headcount.data.preparation import Workers, read_tables
from headcount.errors import InputError

TRAIN = [  # source, target, why it goes
    ("a\u0308  b ", "fine", None),
    ("", "no source", "empty"),
    ("no target", " \u2028\t", "empty"),
    ("one two three four", "eins", "too long"),
    ("abc", "abc", None),
    ("abcdefghi", "ab", "length ratio"),
    ("ä b", "fine", "duplicate"),
    ("ä b", "other", None),
    ("held", "new", "leak"),
    ("new", "gehalten", "leak"),
    ("kept", "last", None),
]


def splits(train, valid, test):
    def dataset(pairs):
        columns = {"source": [p[0] for p in pairs], "target": [p[1] for p in pairs], "row": list(range(len(pairs)))}
        return Dataset.from_dict(columns)

    return DatasetDict({"train": dataset(train), "valid": dataset(valid), "test": dataset(test)})


VALID = [(" held ", "gehalten"), ("", "x"), ("same", "same"), ("same", "same")]
TEST = [("one two three four", "e"), ("t", "tttttttttt")]


@pytest.fixture
def data():
    return splits([pair[:2] for pair in TRAIN], VALID, TEST)


@pytest.fixture(params=[2, 100], ids=lambda rows: f"{rows} at once")
def clean(request, tmp_path, monkeypatch):
    """What cleaning leaves of splits, and its report, however they are cut."""
    monkeypatch.setattr(preparation, "CHUNK", request.param)

    def run(cleaning, data):
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        texts = {split: folder / split for split in data}
        with Workers(1) as workers:
            report = preparation.clean(data, cleaning, texts, workers, lambda done: None)
        report.require_pairs()
        return {split: Dataset(pa.concat_tables(read_tables(path))) for split, path in texts.items()}, report

    return run


def test_train_is_filtered_and_the_rest_only_counted(data, clean):
    cleaned, report = clean(Cleaning(max_words=3, max_ratio=4.0), data)
    kept = [row for row, (_, _, reason) in enumerate(TRAIN) if reason is None]
    assert cleaned["train"].to_dict() == {
        "source": ["ä b", "abc", "ä b", "kept"],
        "target": ["fine", "abc", "other", "last"],
        "row": kept,
    }
    assert cleaned["valid"].to_dict() == data["valid"].to_dict()
    assert cleaned["test"].to_dict() == data["test"].to_dict()
    assert report.counts == {
        "train": {
            "read": 11,
            "normalised": 2,
            "empty": 2,
            "too long": 1,
            "length ratio": 1,
            "duplicate": 1,
            "leak": 2,
            "kept": 4,
        },
        "valid": {"read": 4, "normalised": 1, "empty": 1, "duplicate": 1, "kept": 4},
        "test": {"read": 2, "normalised": 0, "too long": 1, "length ratio": 1, "kept": 2},
    }


def test_limits_hold_at_their_edge(clean):
    train = [("a b c", "x y z"), ("a b c d", "w x y z"), ("abcd", "a"), ("abcde", "a")]
    data = splits(train, [("v", "v")], [("t", "t")])
    cleaned, _ = clean(Cleaning(max_words=3, max_ratio=4.0), data)
    assert cleaned["train"]["row"][:] == [0, 2]


def test_duplicates_and_leaks_can_stay_and_are_still_counted(data, clean):
    cleaned, report = clean(Cleaning(max_words=3, max_ratio=4.0, drop_duplicates=False, drop_leaks=False), data)
    assert cleaned["train"].num_rows == report.counts["train"]["kept"] == 7
    assert report.counts["train"]["leak"] == 2
    assert "leak (kept)" in report.table()


@pytest.mark.parametrize("tolerated", ["drop_duplicates", "drop_leaks"])
def test_a_pair_that_may_stay_for_one_reason_still_goes_for_the_other(tolerated, clean):
    data = splits([("a", "b"), ("v", "c"), ("v", "c")], [("v", "v")], [("t", "t")])
    cleaned, _ = clean(Cleaning(**{tolerated: False}), data)
    assert cleaned["train"]["row"][:] == {"drop_duplicates": [0], "drop_leaks": [0, 1]}[tolerated]


def test_no_limits_by_null(data, clean):
    _, report = clean(Cleaning(), data)
    assert not {"too long", "length ratio"} & set(report.counts["train"])


def test_switched_off_changes_nothing(data, clean):
    cleaned, report = clean(Cleaning(enabled=False, max_words=1), data)
    assert cleaned["train"].to_dict() == data["train"].to_dict()
    assert "cleaning is off" in report.table()


def test_cleaning_twice_finds_nothing_more(data, clean):
    once, _ = clean(Cleaning(max_words=3, max_ratio=4.0), data)
    twice, report = clean(Cleaning(max_words=3, max_ratio=4.0), once)
    assert twice["train"].to_dict() == once["train"].to_dict()
    assert report.counts["train"] == {"read": 4, "normalised": 0, "kept": 4}


def test_table_is_aligned_and_survives_json(data, clean):
    _, report = clean(Cleaning(max_words=3, max_ratio=4.0), data)
    assert report.table() == "\n".join(
        [
            "pairs            train  valid  test",
            "read                11      4     2",
            "normalised           2      1     0",
            "empty                2      1     0",
            "too long             1      0     1",
            "length ratio         1      0     1",
            "duplicate            1      1     0",
            "leak                 2      -     -",
            "too many pieces      0      0     0",
            "kept                 4      4     2",
            "Only train is filtered; valid and test are counted and kept whole.",
        ]
    )
    assert CleaningReport.from_dict(json.loads(json.dumps(report.as_dict()))) == report


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (splits([], [("v", "v")], [("t", "t")]), "the train split of the corpus holds no pairs"),
        (splits([("a", "b")], [("v", "v")], []), "the test split of the corpus holds no pairs"),
        (
            splits([("a", ""), ("v", "b"), ("v", "c")], [("v", "v")], [("t", "t")]),
            r"no pair of the train split is left: 3 read, 2 of them dropped as 'leak'",
        ),
    ],
)
@pytest.mark.filterwarnings("error")
def test_an_empty_split_is_named_with_the_main_reason(data, message, clean):
    with pytest.raises(InputError, match=message):
        clean(Cleaning(), data)


@pytest.mark.parametrize("setting", ["max_words", "max_ratio"])
def test_impossible_limits_are_refused(setting):
    with pytest.raises(ValueError, match=rf"data\.cleaning\.{setting}=0"):
        Cleaning(**{setting: 0})
