import itertools
import json
import os
import random
import signal
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from built import cleaning, sentence_piece
from conftest import completed, failed
from datasets import Dataset, DatasetDict

from headcount.data import prepare as prepare_module
from headcount.data.prepare import encode, in_processes, on_disk, prepare, training_text
from headcount.data.tokenizer import Tokenizer, normalise
from headcount.errors import InputError
from headcount.progress import progress_bar

WORDS = ["the", "old", "dog", "Bär", "sees", "äpfel", "and", "häuser", "in", "for", "by", "one", "two", "three"]


class Untidy:
    """A corpus with something of all that cleaning finds."""

    source_language, target_language = "en", "de"

    def __init__(self) -> None:
        draw = random.Random(1)

        def text() -> str:
            return draw.choice([" ", "  ", "\t"]).join(draw.choices(WORDS, k=draw.choice([0, 1, 2, 3, 4, 5, 6, 7, 30])))

        seen = [(text(), text()) for _ in range(150)]
        self.splits = {
            split: [draw.choice(seen) if draw.random() < 0.3 else (text(), text()) for _ in range(count)]
            for split, count in {"train": 500, "valid": 7, "test": 11, "more": 50}.items()
        }

    def load(self) -> DatasetDict:
        splits = {}
        for split, pairs in self.splits.items():
            source, target = zip(*pairs, strict=True)
            links = [[{"row": row}] for row in range(len(pairs))]
            splits[split] = Dataset.from_dict({"source": source, "target": target, "links": links})
        return DatasetDict(splits)

    def fingerprint(self) -> str:
        return "untidy"


def by_hand(corpus, cleaning, tokenizer, max_length):
    """The training pairs that stay, with their rows, and the counts: all at once, text compared with text."""
    normal = {split: [tuple(map(normalise, pair)) for pair in pairs] for split, pairs in corpus.splits.items()}
    sources, targets = (
        {pair[side] for split in ("valid", "test", "more") for pair in normal[split]} for side in (0, 1)
    )
    kept, seen, counts = [], set(), Counter()
    for row, (source, target) in enumerate(normal["train"]):
        shorter, longer = sorted((len(source), len(target)))
        if not shorter:
            reason = "empty"
        elif len(source.split()) > cleaning.max_words or len(target.split()) > cleaning.max_words:
            reason = "too long"
        elif longer > 12 and longer > cleaning.max_ratio * shorter:
            reason = "unequal lengths"
        elif (source, target) in seen:
            reason = "duplicate"
        elif source in sources or target in targets:
            reason = "leak"
        else:
            reason = None
            kept.append((row, source, target))
        seen.add((source, target))
        counts[reason] += 1
    tokenizer = tokenizer.train([pair[side] for side in (1, 2) for pair in kept])
    encoded = [(*pair, *tokenizer.encode([pair[1], pair[2]])) for pair in kept]
    short = [pair for pair in encoded if len(pair[3]) <= max_length and len(pair[4]) <= max_length]
    counts["too many pieces"] = len(encoded) - len(short)
    del counts[None]
    return tokenizer, short, counts


def pieces_of(folder, split):
    """The piece numbers of both sides of a split, as they are stored."""
    pieces, offsets = np.fromfile(folder / f"{split}.pieces", np.int32), np.load(folder / f"{split}.offsets.npy")
    ids = [pieces[start:end].tolist() for start, end in itertools.pairwise(offsets)]
    return ids[::2], ids[1::2]


@pytest.mark.medium
@pytest.mark.parametrize(("chunk", "processes"), [(1, 1), (7, 3), (64, 2), (1000, 1)])
def test_neither_chunks_nor_processes_change_anything(tmp_path, monkeypatch, processes, chunk):
    monkeypatch.setattr(prepare_module, "CHUNK", chunk)
    monkeypatch.setattr(prepare_module, "SMALL", 0)
    torch.set_num_threads(processes)
    corpus, rules, trainer = Untidy(), cleaning(max_words=10, max_ratio=3.0), sentence_piece(300)
    prepare(corpus, rules, trainer, 14, tmp_path / "data")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    tmp_path = tmp_path / "data"
    tokenizer, pairs, counts = by_hand(corpus, rules, trainer, 14)
    data = {split: Dataset.from_file(str(tmp_path / f"{split}.arrow")) for split in corpus.splits}
    train = data["train"].to_dict()
    assert [links[0]["row"] for links in train["links"]] == [pair[0] for pair in pairs]
    assert [train[name] for name in ("source", "target")] == [[pair[column] for pair in pairs] for column in (1, 2)]
    assert pieces_of(tmp_path, "train") == tuple([pair[column] for pair in pairs] for column in (3, 4))
    for split in ("valid", "test", "more"):
        assert list(zip(data[split]["source"], data[split]["target"], strict=True)) == corpus.splits[split]
        assert pieces_of(tmp_path, split)[1] == tokenizer.encode(data[split]["target"][:])
    assert Tokenizer.load(tmp_path / "tokenizer.model").fingerprint() == tokenizer.fingerprint()
    report = json.loads((tmp_path / "report.json").read_text())["counts"]["train"]
    assert {name: report[name] for name in counts} == counts
    assert min(counts.values()) > 0
    assert len(counts) == 6
    names = {f"{split}.{kind}" for split in data for kind in ("arrow", "pieces", "offsets.npy")}
    assert {path.name for path in tmp_path.iterdir()} == {"report.json", "tokenizer.model", *names}


def test_the_tokenizer_learns_from_a_sample():
    texts = [f"sentence number {number}" for number in range(1000)]
    pairs = Dataset.from_dict({"source": texts, "target": [text.upper() for text in texts]}).with_format("arrow")
    kept = np.arange(1000) % 2 == 0
    assert training_text(pairs, kept, 1.0) == [texts[::2], [text.upper() for text in texts[::2]]]
    source, target = training_text(pairs, kept, 0.25)
    assert target == [text.upper() for text in source]
    assert 90 < len(source) < 160


def test_sentences_without_a_piece(tmp_path):
    empty = on_disk(Dataset.from_dict({"source": ["", ""], "target": ["", ""]}), tmp_path / "text")
    tokenizer = sentence_piece(264).train(["ab ab"])
    assert encode(empty, None, tokenizer, None, tmp_path / "test") == 0
    assert pieces_of(tmp_path, "test") == ([[], []], [[], []])


def killed(rows):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_killed_process_is_one_line(monkeypatch):
    monkeypatch.setattr(prepare_module, "SMALL", 0)
    torch.set_num_threads(2)
    with pytest.raises(InputError, match="a process that helped to prepare the data was killed"):
        list(in_processes(killed, 10))


@pytest.mark.parametrize("person", [False, True])
def test_a_bar_for_a_person_only(person, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: person)
    with progress_bar("cleaning", 10) as advance:
        advance(4)
    shown = capsys.readouterr().err
    assert "4/10" in shown if person else shown == ""


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
