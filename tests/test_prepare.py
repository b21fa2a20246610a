"""Preparation: what cleaning drops and counts, and what is stored, whatever the chunks and the processes."""

import itertools
import json
import random
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from built import cleaning, sentence_piece
from conftest import completed, failed, snapshot
from datasets import Dataset, DatasetDict, Features, Value

from headcount.data import prepare as prepare_module
from headcount.data.cleaning import CleaningReport
from headcount.data.prepare import prepare, training_text
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
VALID = [(" held ", "gehalten"), ("", "x"), ("same", "same"), ("same", "same")]
TEST = [("one two three four", "e"), ("t", "ttttttttttttt")]
DROPPED = {"empty": 2, "too long": 1, "unequal lengths": 1, "duplicate": 1, "leak": 2}


def splits(train, **others):
    def dataset(pairs):
        links = [[{"row": row}] for row in range(len(pairs))]
        columns = {"source": [p[0] for p in pairs], "target": [p[1] for p in pairs], "row": list(range(len(pairs)))}
        return Dataset.from_dict({**columns, "links": links})

    return DatasetDict({split: dataset(pairs) for split, pairs in {"train": train, **others}.items()})


@pytest.fixture
def data():
    return splits([pair[:2] for pair in TRAIN], valid=VALID, test=TEST)


@pytest.fixture
def clean(tmp_path):
    """What cleaning leaves of splits, its report, and the folder."""

    def run(cleaning, data, tokenizer=TOKENIZER, max_length=None):
        corpus = SimpleNamespace(load=lambda: data, fingerprint=lambda: "")
        folder = Path(tempfile.mkdtemp(dir=tmp_path)) / "data"
        prepare(corpus, cleaning, tokenizer, max_length, folder)
        kept = {split: Dataset.from_file(str(folder / f"{split}.arrow")) for split in data}
        return kept, CleaningReport(**json.loads((folder / "report.json").read_text())), folder

    return run


def test_train_is_filtered_and_the_rest_only_counted(data, clean):
    cleaned, report, _ = clean(cleaning(max_words=3, max_ratio=4.0), data)
    kept = [row for row, (_, _, reason) in enumerate(TRAIN) if reason is None]
    assert cleaned["train"].to_dict() == {
        "source": ["ä b", "abc", "ä b", "kept"],
        "target": ["fine", "abc", "other", "last"],
        "row": kept,
        "links": [[{"row": row}] for row in kept],
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


@pytest.mark.parametrize(
    ("train", "changes", "kept"),
    [  # limits at their edge
        ([("a b c", "x y z"), ("a b c d", "w x y z")], {"max_words": 3}, [0]),
        ([("abcd" * 4, "abcd"), ("abcd" * 4 + "e", "abcd"), ("abc" * 4, "ab")], {"max_ratio": 4.0}, [0, 2]),
        (  # text without spaces is as long as its translation
            [
                ("Documentation is not available", "沒有可用的文件"),
                ("Not enough memory to set references", "記憶體不足"),
                ("Please close the window before you leave", "退室前に窓を閉めて"),
                ("It is raining outside again", "또 비가 와"),
                ("Documentation is not available, I fear", "沒有"),
            ],
            {"max_ratio": 4.0},
            [0, 1, 2, 3],
        ),
        # a pair that may stay for one reason still goes for the other
        ([("a", "b"), ("v", "c"), ("v", "c")], {"drop_duplicates": False}, [0]),
        ([("a", "b"), ("v", "c"), ("v", "c")], {"drop_leaks": False}, [0, 1]),
    ],
)
def test_what_stays(train, changes, kept, clean):
    cleaned, report, _ = clean(cleaning(**changes), splits(train, valid=[("v", "v")], test=[("t", "t")]))
    assert cleaned["train"]["row"][:] == kept
    assert report.counts["train"]["kept"] == len(kept)


def test_switched_off_changes_nothing_but_line_ends(data, clean):
    cleaned, report, folder = clean(cleaning(enabled=False, max_words=1), data)
    one_line = [text.replace("\u2028", " ") for text in data["train"]["target"]]
    assert cleaned["train"].to_dict() == {**data["train"].to_dict(), "target": one_line}
    assert "cleaning is off" in report.table()
    pieces, offsets = np.fromfile(folder / "train.pieces", np.int32), np.load(folder / "train.offsets.npy")
    ids = [pieces[start:end].tolist() for start, end in itertools.pairwise(offsets)]
    assert (ids[2], ids[5]) == ([], [])  # sides without a piece
    assert ids[8:10] == TOKENIZER.encode(["abc", "abc"])


def test_text_may_be_of_the_large_kind_and_may_be_missing(data, clean):
    kind = Features({"source": Value("large_string"), "target": Value("large_string")})
    odd = "a\rb\x0bc\x0cd\x1ce\x1df\x1eg\x85h\u2028i\u2029j"
    large = {"source": ["a\rb", None, odd], "target": ["x", "y", "z\x85"]}
    data = DatasetDict({split: Dataset.from_dict(large, kind) for split in data})
    for enabled in (True, False):
        cleaned, *_ = clean(cleaning(enabled=enabled, drop_leaks=False), data)
        expected = {"source": ["a b", "", "a b c d e f g h i j"], "target": ["x", "y", "z "]}
        assert cleaned["test"].to_dict() == expected


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ([], [("t", "t")], "the train split of the corpus holds no pairs"),
        ([("a", "b")], [], "the test split of the corpus holds no pairs"),
        ([("a", ""), ("v", "b"), ("v", "c")], [("t", "t")], "train split is left: 3 read, 2 of .* as 'leak'"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_an_empty_split_is_named_with_the_main_reason(train, test, message, clean):
    with pytest.raises(InputError, match=message):
        clean(cleaning(), splits(train, valid=[("v", "v")], test=test))


@pytest.mark.medium
def test_neither_chunks_nor_processes_change_anything(clean, monkeypatch):
    draw = random.Random(1)
    words = ["the", "old", "dog", "Bär", "sees", "äpfel", "and", "häuser", "in", "for", "by", "one", "two", "three"]

    def text() -> str:
        return draw.choice([" ", "  ", "\t"]).join(draw.choices(words, k=draw.choice([0, 1, 2, 3, 4, 5, 6, 7, 30])))

    seen = [(text(), text()) for _ in range(150)]
    drawn = {
        split: [draw.choice(seen) if draw.random() < 0.3 else (text(), text()) for _ in range(count)]
        for split, count in {"train": 500, "valid": 7, "test": 11, "more": 50}.items()
    }
    monkeypatch.setattr(prepare_module, "SMALL", 0)
    expected = None
    for chunk, processes in ((1000, 1), (1, 1), (7, 3), (64, 2)):
        monkeypatch.setattr(prepare_module, "CHUNK", chunk)
        torch.set_num_threads(processes)
        cleaned, report, folder = clean(
            cleaning(max_words=10, max_ratio=3.0), splits(**drawn), sentence_piece(300), max_length=14
        )
        files = {name: content for name, content in snapshot(folder).items() if not name.endswith(".arrow")}
        found = files, {split: pairs.to_dict() for split, pairs in cleaned.items()}
        assert (expected := expected or found) == found
    assert all(report.counts["train"][reason] for reason in (*DROPPED, "too many pieces"))
    assert "too many subwords" in report.table()
    names = {f"{split}.{kind}" for split in drawn for kind in ("pieces", "offsets.npy")}
    assert files.keys() == {"report.json", "tokenizer.model", *names}


def test_the_tokenizer_learns_from_a_sample():
    texts = [f"sentence number {number}" for number in range(1000)]
    pairs = Dataset.from_dict({"source": texts, "target": [text.upper() for text in texts]}).with_format("arrow")
    kept = np.arange(1000) % 2 == 0
    assert training_text(pairs, kept, 1.0) == [texts[::2], [text.upper() for text in texts[::2]]]
    source, target = training_text(pairs, kept, 0.25)
    assert target == [text.upper() for text in source]
    assert 90 < len(source) < 160


@pytest.mark.medium
@pytest.mark.parametrize("init_from", [None, "runs/first"])
def test_the_command_prepares_what_training_reads(init_from, tiny, text, home, tmp_path):
    settings = tiny[:-1]
    if init_from:  # with its tokenizer and longest sentence
        (tmp_path / "runs").symlink_to(home / "runs")
        corpus = f"data=multi30k data.root={text}"
        settings = f"{corpus} init_from={init_from} steps=2 schedule.warmup_steps=1".split()
    out = completed("train", *settings, "data.directory=prepared", "prepare=true", cwd=tmp_path).out
    (folder,) = (path for path in (tmp_path / "prepared" / "prepared").iterdir() if path.is_dir())
    written, _, line = out.rpartition("headcount train ")
    assert f"prepared: {folder.relative_to(tmp_path)}\nnext:  " in written
    before = folder.stat().st_ctime_ns
    completed("train", *line.split(), "hydra.run.dir=run", cwd=tmp_path)
    assert folder.stat().st_ctime_ns == before
    assert [path for path in folder.parent.iterdir() if path.is_dir()] == [folder]


@pytest.mark.medium
def test_a_run_that_goes_on_prepares_its_corpus_itself(home):
    (line,) = failed("train", "prepare=true", "resume=runs/first", cwd=home)
    assert line.startswith("resume=runs/first: resuming that run prepares its corpus")
    (line,) = failed("train", "prepare=true", "threads=-3", cwd=home)
    assert line.startswith("threads=-3: must be a number of processor cores")
