import json
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from built import cleaning, sentence_piece
from datasets import Dataset, DatasetDict, Features, Value

from headcount.data.cleaning import CleaningReport
from headcount.data.prepare import prepare
from headcount.errors import InputError

TOKENIZER = sentence_piece(264).train(["ab ab"])
TRAIN = [  # source, target, why it goes
    ("a\u0308  b ", "fine", None),
    ("", "no source", "empty"),
    ("no target", " \u2028\t", "empty"),
    ("one two three four", "eins", "too long"),
    ("abc", "abc", None),
    ("abcdefghi jkl", "abc", "unequal lengths"),
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
TEST = [("one two three four", "e"), ("t", "ttttttttttttt")]


DROPPED = {"empty": 2, "too long": 1, "unequal lengths": 1, "duplicate": 1, "leak": 2}


@pytest.fixture
def data():
    return splits([pair[:2] for pair in TRAIN], VALID, TEST)


@pytest.fixture
def clean(tmp_path):
    """What cleaning leaves of splits, and its report."""

    def run(cleaning, data):
        corpus = SimpleNamespace(load=lambda: data, fingerprint=lambda: "")
        folder = Path(tempfile.mkdtemp(dir=tmp_path)) / "data"
        prepare(corpus, cleaning, TOKENIZER, None, folder)
        kept = {split: Dataset.from_file(str(folder / f"{split}.arrow")) for split in data}
        return kept, CleaningReport(**json.loads((folder / "report.json").read_text()))

    return run


def test_train_is_filtered_and_the_rest_only_counted(data, clean):
    cleaned, report = clean(cleaning(max_words=3, max_ratio=4.0), data)
    kept = [row for row, (_, _, reason) in enumerate(TRAIN) if reason is None]
    assert cleaned["train"].to_dict() == {
        "source": ["ä b", "abc", "ä b", "kept"],
        "target": ["fine", "abc", "other", "last"],
        "row": kept,
    }
    assert cleaned["valid"].to_dict() == data["valid"].to_dict()
    assert cleaned["test"].to_dict() == data["test"].to_dict()
    assert report.counts == {
        "train": {"read": 11, "normalised": 2, "kept": 4, **DROPPED},
        "valid": {"read": 4, "normalised": 1, "empty": 1, "duplicate": 1, "kept": 4},
        "test": {"read": 2, "normalised": 0, "too long": 1, "unequal lengths": 1, "kept": 2},
    }
    rows = [line.split("  ") for line in report.table().splitlines()]
    cells = {row[0]: [cell.strip() for cell in row[1:] if cell.strip()] for row in rows}
    assert [cells[name] for name in ("pairs", "leak", "kept")] == [[*data], ["2", "-", "-"], ["4", "4", "2"]]


def test_limits_hold_at_their_edge(clean):
    train = [("a b c", "x y z"), ("a b c d", "w x y z"), ("abcd" * 4, "abcd"), ("abcd" * 4 + "e", "abcd")]
    data = splits(train, [("v", "v")], [("t", "t")])
    cleaned, _ = clean(cleaning(max_words=3, max_ratio=4.0), data)
    assert cleaned["train"]["row"][:] == [0, 2]


def test_text_without_spaces_is_as_long_as_its_translation(clean):
    train = [
        ("Documentation is not available", "沒有可用的文件"),
        ("Not enough memory to set references", "記憶體不足"),
        ("Please close the window before you leave", "退室前に窓を閉めて"),
        ("It is raining outside again", "또 비가 와"),
        ("Documentation is not available, I fear", "沒有"),
    ]
    cleaned, report = clean(cleaning(max_ratio=4.0), splits(train, [("v", "v")], [("t", "t")]))
    assert cleaned["train"]["row"][:] == [0, 1, 2, 3]
    assert report.counts["train"]["unequal lengths"] == 1


def test_duplicates_and_leaks_can_stay_and_are_still_counted(data, clean):
    cleaned, report = clean(cleaning(max_words=3, max_ratio=4.0, drop_duplicates=False, drop_leaks=False), data)
    assert cleaned["train"].num_rows == report.counts["train"]["kept"] == 7
    assert report.counts["train"]["leak"] == 2
    assert "leak (kept)" in report.table()


@pytest.mark.parametrize("tolerated", ["drop_duplicates", "drop_leaks"])
def test_a_pair_that_may_stay_for_one_reason_still_goes_for_the_other(tolerated, clean):
    data = splits([("a", "b"), ("v", "c"), ("v", "c")], [("v", "v")], [("t", "t")])
    cleaned, _ = clean(cleaning(**{tolerated: False}), data)
    assert cleaned["train"]["row"][:] == {"drop_duplicates": [0], "drop_leaks": [0, 1]}[tolerated]


def test_switched_off_changes_nothing(data, clean):
    cleaned, report = clean(cleaning(enabled=False, max_words=1), data)
    one_line = [text.replace("\u2028", " ") for text in data["train"]["target"]]
    assert cleaned["train"].to_dict() == {**data["train"].to_dict(), "target": one_line}
    assert "cleaning is off" in report.table()


def test_text_may_be_of_the_large_kind_and_may_be_missing(data, clean):
    kind = Features({"source": Value("large_string"), "target": Value("large_string")})
    large = {"source": ["a\rb", None, "c"], "target": ["x", "y", "z\x85"]}
    data = DatasetDict({split: Dataset.from_dict(large, kind) for split in data})
    for enabled in (True, False):
        cleaned, _ = clean(cleaning(enabled=enabled, drop_leaks=False), data)
        assert cleaned["test"].to_dict() == {"source": ["a b", "", "c"], "target": ["x", "y", "z "]}


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
        clean(cleaning(), data)
