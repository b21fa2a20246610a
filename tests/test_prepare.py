import itertools
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from built import cleaning, sentence_piece
from conftest import completed, failed
from datasets import Dataset, DatasetDict

from headcount.data import prepare as prepare_module
from headcount.data.arrow import read_sentences, read_tables, write_tables
from headcount.data.corpora.corpus import Pairs
from headcount.data.prepare import prepare, training_text
from headcount.data.shards import numbered
from headcount.data.tokenizer import Tokenizer, normalise
from headcount.data.workers import Workers
from headcount.errors import InputError, UnreachableError
from headcount.progress import progress_bar
from headcount.run.directory import read_config

WORDS = ["the", "old", "dog", "Bär", "sees", "äpfel", "and", "häuser", "in", "for", "by", "one", "two", "three"]


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
            for split, count in {"train": 500, "valid": 7, "test": 11}.items()
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
        {pair[side] for split in ("valid", "test") for pair in normal[split]} if cleaning.drop_leaks else set()
        for side in (0, 1)
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


@pytest.mark.medium
@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize(("chunk", "shard"), [(1, 100), (7, 1), (64, 3), (1000, 16)])
def test_neither_chunks_nor_shards_nor_processes_change_anything(tmp_path, monkeypatch, processes, chunk, shard):
    if chunk == 1 and processes == 3:
        pytest.skip("slow, and nothing new")
    monkeypatch.setattr("headcount.data.prepare.CHUNK", chunk)
    monkeypatch.setattr("headcount.data.shards.CHUNKS", shard)
    corpus, rules, trainer = Untidy(), cleaning(max_words=10, max_ratio=3.0), sentence_piece(300)
    prepare(corpus, rules, trainer, 14, tmp_path / "data", processes)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    tmp_path = tmp_path / "data"
    tokenizer, pairs, counts = by_hand(corpus, rules, trainer, 14)
    data = {split: Dataset.from_file(str(tmp_path / f"{split}.arrow")) for split in corpus.splits}
    train = data["train"].to_dict()
    assert [links[0]["row"] for links in train["links"]] == [pair[0] for pair in pairs]
    assert [train[name] for name in ("source", "target", "source_ids", "target_ids")] == [
        [pair[column] for pair in pairs] for column in (1, 2, 3, 4)
    ]
    for split in ("valid", "test"):
        assert list(zip(data[split]["source"], data[split]["target"], strict=True)) == corpus.splits[split]
        assert data[split]["target_ids"][:] == tokenizer.encode(data[split]["target"][:])
    assert Tokenizer.load(tmp_path / "tokenizer.model").fingerprint() == tokenizer.fingerprint()
    report = json.loads((tmp_path / "report.json").read_text())["counts"]["train"]
    assert {name: report[name] for name in counts} == counts
    assert min(counts.values()) > 0
    assert len(counts) == 6
    for name, column in (("source_ids", 3), ("target_ids", 4)):
        sentences = read_sentences(tmp_path / "train.arrow", name)
        found = zip(sentences.starts, sentences.ends, strict=True)
        assert [sentences.pieces[start:end].tolist() for start, end in found] == [pair[column] for pair in pairs]
    names = {"report.json", "tokenizer.model", "train.arrow", "valid.arrow", "test.arrow"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_the_tokenizer_learns_from_a_sample():
    texts = [f"sentence number {number}" for number in range(1000)]
    whole = pa.table({"source": texts, "target": [text.upper() for text in texts]})

    def text(rows):
        return numbered(whole.slice(start, rows) for start in range(0, 1000, rows))

    for side in ("source", "target"):
        assert list(training_text(text(1000), side, 1.5)) == whole[side].to_pylist()
    source, target = (list(training_text(text(1000), side, 0.25)) for side in ("source", "target"))
    assert target == [text.upper() for text in source]
    assert 200 < len(source) < 300
    assert source == list(training_text(text(7), "source", 0.25))


class Dying(Untidy):
    """A corpus that kills its reader, as the system does where memory is short, before a row."""

    def __init__(self, row):
        super().__init__()
        self.row = row

    def load(self):
        splits = super().load()

        def tables(rows):
            for start in range(0, len(splits["train"]), rows):
                if start >= self.row:
                    os.kill(os.getpid(), signal.SIGKILL)
                yield splits["train"].with_format("arrow")[start : start + rows]

        return {**splits, "train": Pairs(len(splits["train"]), tables)}


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


SMALL = (cleaning(max_words=10, max_ratio=3.0), sentence_piece(300), 14)


@pytest.mark.medium
@pytest.mark.skipif(sys.platform != "linux", reason="forks")
@pytest.mark.parametrize("row", [7, 250, 490])
def test_a_killed_preparation_goes_on_after_its_last_shard(tmp_path, monkeypatch, row):
    monkeypatch.setattr("headcount.data.prepare.CHUNK", 7)
    monkeypatch.setattr("headcount.data.shards.CHUNKS", 3)
    killed = multiprocessing.get_context("fork").Process(
        target=prepare, args=(Dying(row), *SMALL, tmp_path / "data", 1)
    )
    killed.start()
    killed.join(60)
    assert killed.exitcode == -signal.SIGKILL
    finished = {path: path.stat().st_mtime_ns for path in (tmp_path / "data.part" / "checked").glob("*.arrow")}
    assert len(finished) == -(-row // 7) // 3
    kept = []
    monkeypatch.setattr(shutil, "rmtree", lambda folder, **_: kept.append(folder))
    prepare(Untidy(), *SMALL, tmp_path / "data", 1)
    assert kept[-1] == tmp_path / "data.part"
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    prepare(Untidy(), *SMALL, tmp_path / "whole", 1)
    assert content(tmp_path / "data") == content(tmp_path / "whole")


@pytest.mark.medium
@pytest.mark.skipif(sys.platform != "linux", reason="forks")
@pytest.mark.parametrize("killed", [False, True])
def test_machines_share_a_preparation(tmp_path, monkeypatch, killed):
    monkeypatch.setattr("headcount.data.prepare.CHUNK", 7)
    monkeypatch.setattr("headcount.data.shards.CHUNKS", 3)
    slow = cleaning(max_words=10, max_ratio=3.0)
    check = type(slow).check

    def logged(self, source, target, forbidden):
        time.sleep(0.005)
        with (tmp_path / "log").open("a") as log:
            log.write(f"{os.getpid()} {forbidden is not None}\n")
        return check(self, source, target, forbidden)

    monkeypatch.setattr(type(slow), "check", logged)
    fork = multiprocessing.get_context("fork")
    machines = [fork.Process(target=prepare, args=(Untidy(), *SMALL, tmp_path / "data", 1)) for _ in range(3)]
    for machine in machines:
        machine.start()
    if killed:
        deadline = time.monotonic() + 60
        while not (log := tmp_path / "log").exists() or f"{machines[0].pid} True" not in log.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.001)
        machines.pop(0).kill()
    for machine in machines:
        machine.join(60)
    assert [machine.exitcode for machine in machines] == [0] * len(machines)
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert len({process for process, train in lines if train == "True"}) == 3
    chunks = sum(train == "True" for _, train in lines)
    assert 72 <= chunks <= 72 + 3 * killed
    assert [path.name for path in tmp_path.iterdir() if path.name != "log"] == ["data"]
    monkeypatch.undo()
    prepare(Untidy(), *SMALL, tmp_path / "whole", 1)
    whole = content(tmp_path / "whole")
    assert content(tmp_path / "data").keys() == whole.keys()
    assert (
        Dataset.from_file(str(tmp_path / "data" / "train.arrow")).to_dict()
        == Dataset.from_file(str(tmp_path / "whole" / "train.arrow")).to_dict()
    )


@pytest.mark.medium
def test_results_come_in_order_and_not_long_beforehand():
    taken = []

    def tables():
        for number in range(30):
            taken.append(number)
            yield pa.table({"source": [str(number)], "target": [str(-number)]})

    with Workers(2) as workers:
        results = workers.each(slowly, numbered(tables()))
        assert [result for _, _, result in itertools.islice(results, 3)] == ["0 0", "1 -1", "2 -2"]
        assert len(taken) <= 8
        assert [table["source"][0].as_py() for _, table, _ in results] == [str(number) for number in range(3, 30)]


def slowly(source, target):
    time.sleep(0.02 if int(source[0].as_py()) % 3 else 0)
    return f"{source[0]} {target[0]}"


class Heavy:
    """A function that counts how often it is sent to another process."""

    sent = 0

    def __reduce__(self):
        Heavy.sent += 1
        return Heavy, ()

    def __call__(self, source, target):
        return len(source)


@pytest.mark.medium
def test_what_workers_do_is_sent_once_and_not_with_every_chunk():
    tables = [pa.table({"source": ["a"] * rows, "target": ["b"] * rows}) for rows in range(1, 30)]
    with Workers(2) as workers:
        for _ in range(2):
            assert [rows for _, _, rows in workers.each(Heavy(), numbered(tables))] == list(range(1, 30))
    assert Heavy.sent == 2


def die(source, target):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_is_one_line():
    one = pa.table({"source": ["a"], "target": ["b"]})
    with Workers(2) as workers, pytest.raises(InputError, match="a process that helped to prepare the data was killed"):
        list(workers.each(die, numbered([one] * 10)))


def test_wrong_text_ends_the_work(tmp_path):
    def tables():
        yield pa.table({"source": ["a"], "target": ["b"]})
        raise InputError("file, line 3: not valid UTF-8")

    with Workers(2) as workers, pytest.raises(InputError, match="line 3"):
        list(workers.each(slowly_any, numbered(tables())))


def slowly_any(source, target):
    time.sleep(0.05)


@pytest.mark.medium
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_nobody_is_left_over_when_the_first_process_is_killed():
    script = (
        "import multiprocessing, time\n"
        "from headcount.data.workers import Workers\n"
        "with Workers(2) as workers:\n"
        "    print(*(child.pid for child in multiprocessing.active_children()), flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as first:
        children = [int(pid) for pid in first.stdout.readline().split()]
        first.kill()
    assert len(children) == 2
    deadline = time.monotonic() + 10
    while any(alive(child) for child in children) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(alive(child) for child in children)


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_bar_for_a_person_only(capsys, monkeypatch):
    with progress_bar("cleaning", 10) as advance:
        advance(4)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress_bar("cleaning", 10) as advance:
        advance(4)
    assert "4/10" in capsys.readouterr().err


def test_sentences_without_a_piece(tmp_path):
    ids = pa.array([[], [], []], pa.list_(pa.int32()))
    write_tables(tmp_path / "empty", [pa.table({"ids": ids})])
    sentences = read_sentences(tmp_path / "empty", "ids")
    assert sentences.lengths.tolist() == [1, 1, 1]
    padded, lengths = sentences.padded(np.arange(3))
    assert padded.shape == (3, 1)
    assert lengths.tolist() == [0, 0, 0]
    assert next(read_tables(tmp_path / "empty")).num_rows == 3


@pytest.mark.medium
def test_the_command_prepares_what_training_reads(tiny, tmp_path):
    settings = (*tiny[:-1], "data.directory=prepared")
    out = completed("train", *settings, "prepare=true", cwd=tmp_path).out
    (folder,) = (path for path in (tmp_path / "prepared" / "prepared").iterdir() if path.is_dir())
    written, _, line = out.rpartition("headcount train ")
    assert f"prepared: {folder.relative_to(tmp_path)}\nnext:  " in written
    before = folder.stat().st_ctime_ns
    completed("train", *line.split(), "hydra.run.dir=run", cwd=tmp_path)
    assert folder.stat().st_ctime_ns == before
    assert [path for path in folder.parent.iterdir() if path.is_dir()] == [folder]


@pytest.mark.medium
def test_the_command_prepares_for_a_run_that_begins_with_another(home, tmp_path):
    settings = ("data=multi30k", f"data.root={tmp_path / 'text'}", "data.directory=prepared", "init_from=runs/first")
    shutil.copytree(home / "runs", tmp_path / "runs")
    shutil.copytree(read_config(home / "runs" / "first").data.root, tmp_path / "text")
    completed("train", *settings, "prepare=true", cwd=tmp_path)
    (folder,) = (path for path in (tmp_path / "prepared" / "prepared").iterdir() if path.is_dir())
    completed("train", *settings, "steps=2", "schedule.warmup_steps=1", "hydra.run.dir=run", cwd=tmp_path)
    assert [path for path in folder.parent.iterdir() if path.is_dir()] == [folder]
    (line,) = failed("train", "prepare=true", "resume=runs/first", cwd=tmp_path)
    assert line.startswith("resume=runs/first: resuming that run prepares its corpus")
    (line,) = failed("train", "prepare=true", "threads=-3", cwd=tmp_path)
    assert line.startswith("threads=-3: must be a number of processor cores")


def stopped_preparation(tmp_path, monkeypatch):
    """The folder of one that was stopped before its last part."""

    def full(*_):
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("headcount.data.prepare.write_tables", full)
        with pytest.raises(OSError, match="full"):
            prepare(Untidy(), *SMALL, tmp_path / "whole")
    return tmp_path / "whole.part"


@pytest.mark.medium
@pytest.mark.parametrize(
    ("path", "damage"),
    [
        ("checked/number.json", b"garbage"),
        ("checked/number.json", b""),
        ("checked/00000.arrow", None),
        ("filtered/report.json", None),
    ],
)
def test_what_is_missing_in_a_stopped_preparation_is_made_again(tmp_path, monkeypatch, path, damage):
    stopped = stopped_preparation(tmp_path, monkeypatch)
    (stopped / path).unlink() if damage is None else (stopped / path).write_bytes(damage)
    prepare(Untidy(), *SMALL, tmp_path / "whole")
    prepare(Untidy(), *SMALL, tmp_path / "other")
    assert content(tmp_path / "whole") == content(tmp_path / "other")


def test_a_machine_that_cannot_reach_the_corpus_leaves_the_work_of_the_others(tmp_path, monkeypatch):
    stopped = stopped_preparation(tmp_path, monkeypatch)
    before = content(stopped / "checked")

    def unreachable():
        raise UnreachableError("no network")

    corpus = Untidy()
    corpus.load = unreachable
    with pytest.raises(UnreachableError):
        prepare(corpus, *SMALL, tmp_path / "whole")
    assert content(stopped / "checked") == before


@pytest.mark.medium
def test_nothing_is_left_of_a_preparation_that_was_killed_as_it_put_parts_together(tmp_path, monkeypatch):
    stopped = stopped_preparation(tmp_path, monkeypatch)
    (stopped / ".whole.1a2b.part").mkdir()
    begun, found = prepare_module.new_directory, []

    def begin(path):
        found.append((path.name, sorted(each.name for each in stopped.glob(".*"))))
        return begun(path)

    monkeypatch.setattr(prepare_module, "new_directory", begin)
    prepare(Untidy(), *SMALL, tmp_path / "whole")
    assert found == [("whole", [])]


@pytest.mark.medium
@pytest.mark.parametrize("share", [0, 0.5])
def test_a_damaged_part_of_a_stopped_preparation_ends_it_once(tmp_path, monkeypatch, share):
    path = stopped_preparation(tmp_path, monkeypatch) / "checked" / "00000.arrow"
    shutil.rmtree(path.parent.with_name("filtered"))
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(InputError, match=r"00000.arrow is damaged .*begins anew: type the same again$"):
        prepare(Untidy(), *SMALL, tmp_path / "whole")
    prepare(Untidy(), *SMALL, tmp_path / "whole")
