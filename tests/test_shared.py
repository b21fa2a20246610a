import errno
import itertools
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import completed
from test_module import made, module, planned_epochs

from headcount.data.shared import remove, remove_older, shared_arrays
from headcount.data.subword_regularization import BpeDropout
from headcount.errors import InputError


def test_arrays_are_made_once_and_mapped(tmp_path):
    numbers = {"a": np.arange(5), "b": np.float64(0.5)}
    for make in (lambda: numbers, pytest.fail):
        found = shared_arrays(tmp_path / "deep" / "x", make)
        assert {name: array.tolist() for name, array in found.items()} == {"a": [0, 1, 2, 3, 4], "b": 0.5}
        with pytest.raises(ValueError, match="read-only"):
            found["a"][0] = 1
    (tmp_path / "deep" / "x" / "a.npy").write_bytes(b"")
    with pytest.raises(InputError, match=r"is damaged .*; delete .*x, it will be made again"):
        shared_arrays(tmp_path / "deep" / "x", pytest.fail)


def test_nothing_is_left_of_arrays_that_could_not_be_made(tmp_path):
    with pytest.raises(ZeroDivisionError):
        shared_arrays(tmp_path / "x", lambda: {"a": np.arange(3), "b": 1 // 0})
    assert [path.name for path in tmp_path.iterdir()] == ["making.lock"]
    assert shared_arrays(tmp_path / "x", lambda: {"a": np.arange(3)})["a"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOSPC])
def test_where_nothing_can_be_written_a_process_has_the_arrays_for_itself(tmp_path, monkeypatch, number):
    def refused(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("headcount.data.shared.np.save", refused)
    assert shared_arrays(tmp_path / "x", lambda: {"a": np.arange(3)})["a"].tolist() == [0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["making.lock"]
    number = errno.EIO
    with pytest.raises(OSError, match=os.strerror(number)):
        shared_arrays(tmp_path / "x", lambda: {"a": np.arange(3)})


@pytest.mark.medium
@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_of_several_processes_one_makes_the_arrays(tmp_path):
    def make():
        with (tmp_path / "log").open("a") as log:
            log.write("made\n")
        time.sleep(0.2)
        return {"a": np.arange(3)}

    def check():
        assert shared_arrays(tmp_path / "x" / "y", make)["a"].tolist() == [0, 1, 2]

    processes = [multiprocessing.get_context("fork").Process(target=check) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (tmp_path / "log").read_text() == "made\n"


def test_what_another_process_removes_is_made_again(tmp_path, monkeypatch):
    shared_arrays(tmp_path / "x", lambda: {"a": np.arange(3)})
    load = np.load

    def removed(path, **options):
        monkeypatch.setattr(np, "load", load)
        remove_older(tmp_path, -1)
        return load(path, **options)

    monkeypatch.setattr(np, "load", removed)
    assert shared_arrays(tmp_path / "x", lambda: {"a": np.arange(4)})["a"].tolist() == [0, 1, 2, 3]


def test_only_what_is_old_is_removed(tmp_path):
    for name, age in (("old", 100), ("new", 0)):
        shared_arrays(tmp_path / name, lambda: {"a": np.arange(3)})
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    remove_older(tmp_path, 50)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["making.lock", "new"]


def trained(data, steps):
    """The batches of the first steps."""
    batches = itertools.islice(data.train_dataloader(), steps)
    return [(each.rows.tolist(), each.source.tolist(), each.target_out.tolist(), each.step_tokens) for each in batches]


@pytest.mark.medium
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"batch_ramp": 30},
        {"both_directions": True},
        {"hide_source": True},
        {"segmentation": BpeDropout(probability=0.1, start_epoch=1)},
        {"workers": 2},
    ],
    ids=lambda settings: next(iter(settings), "plain"),
)
def test_a_large_corpus_is_shared_and_trains_alike(tmp_path, monkeypatch, settings):
    monkeypatch.setenv("WORLD_SIZE", "2")
    steps = 80
    expected = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        expected.append(trained(made(tmp_path, **settings), steps))
    assert not list((tmp_path / "prepared").glob("*.shared"))

    monkeypatch.setattr("headcount.data.module.MANY_PAIRS", 100)
    planned = planned_epochs(monkeypatch, tmp_path / "planned")
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        data = module(tmp_path, **settings)
        data.shares = True
        data.prepare_data()
        assert trained(data, steps) == expected[rank]
        assert isinstance(data.epochs.plan(0).rows.base, np.memmap)
        if rank == 0:
            first = planned()
            epochs = max(first)
            assert epochs >= 2
            assert sorted(set(first)) == list(range(epochs + 1))
            if not settings.get("workers"):
                assert first[: epochs + 1] == list(range(epochs + 1))
    kept = {path.name for path in data.prepared.with_suffix(".shared").iterdir()}
    assert {"plans", "source_ids", "target_ids"} < kept


@pytest.mark.medium
def test_what_is_shared_of_a_folder_that_was_deleted_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr("headcount.data.module.MANY_PAIRS", 100)
    data = made(tmp_path)
    shared = data.prepared.with_suffix(".shared")
    (shared / "source_ids").mkdir(parents=True, exist_ok=True)
    (shared / "source_ids" / "stale.npy").write_bytes(b"places in another file")
    shutil.rmtree(data.prepared)
    again = module(tmp_path)
    again.prepare_data()
    assert data.prepared.is_dir()
    assert not (shared / "source_ids" / "stale.npy").exists()


@pytest.mark.medium
def test_two_processes_in_step_plan_each_epoch_once(tmp_path, monkeypatch):
    monkeypatch.setattr("headcount.data.module.MANY_PAIRS", 100)
    monkeypatch.setenv("WORLD_SIZE", "2")
    made(tmp_path)
    planned = planned_epochs(monkeypatch, tmp_path / "planned")
    ranks = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        data = module(tmp_path)
        data.shares = True
        data.prepare_data()
        ranks.append(iter(data.train_dataloader()))
    for _ in range(80):
        one, other = (next(rank) for rank in ranks)
        assert one.step_tokens == other.step_tokens
        assert not set(one.rows.tolist()) & set(other.rows.tolist())
    assert planned() == list(range(len(planned())))
    assert len(planned()) > 3
    names = sorted(path.name for path in (data.prepared.with_suffix(".shared") / "plans").glob("*-*"))
    assert [int(name.partition("-")[2]) for name in names] == planned()[-2:]


def test_nothing_is_shared_where_nobody_trains_or_nothing_can_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr("headcount.data.module.MANY_PAIRS", 100)
    assert made(tmp_path).epochs.shared is None
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    data = module(tmp_path)
    data.shares = True
    data.prepare_data()
    assert data.epochs.shared is None
    assert not list((tmp_path / "prepared").glob("*.shared"))


@pytest.mark.medium
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_that_shares_has_hardly_memory_of_its_own(tmp_path):
    script = f"""
import json, numpy as np, re
from pathlib import Path
from headcount.data.batching import Epochs
def own():
    return sum(map(int, re.findall(r"Private_Dirty: *(\\d+)", Path("/proc/self/smaps_rollup").read_text()))) * 1024
random = np.random.default_rng(0)
lengths = random.integers(5, 40, (2, 400_000), dtype=np.int32)
epochs = Epochs(*lengths, 4096, 1, shared=(Path({str(tmp_path)!r}), "x"))
before = own()
epochs.plan(0)
print(json.dumps([before, own()]))
"""
    for _ in range(2):
        ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
        before, after = json.loads(ended.stdout)
    assert after - before < 400_000  # bytes; the plan alone has four times as many


def test_what_a_killed_process_half_removed_is_made_again(tmp_path):
    made = {"a": np.arange(3), "b": np.arange(2)}
    shared_arrays(tmp_path / "x", lambda: made)
    (tmp_path / "x" / "b.npy").unlink()
    assert shared_arrays(tmp_path / "x", lambda: made).keys() == made.keys()
    (tmp_path / "x" / "names.json").write_text("")
    assert shared_arrays(tmp_path / "x", lambda: made).keys() == made.keys()


@pytest.mark.medium
@pytest.mark.skipif(sys.platform != "linux", reason="forks")
@pytest.mark.parametrize("times", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_a_folder_that_others_remove_is_whole_or_made_again(times, tmp_path):
    made = {name: np.arange(4) for name in "abcdef"}

    def remover():
        while True:
            remove(tmp_path / "x")

    process = multiprocessing.get_context("fork").Process(target=remover, daemon=True)
    process.start()
    try:
        for _ in range(times):
            assert shared_arrays(tmp_path / "x", lambda: made).keys() == made.keys()
    finally:
        process.kill()


@pytest.mark.medium
def test_a_resumed_run_shares_too(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("headcount.data.module.MANY_PAIRS", 100)
    completed("train", *tiny[:-1], "steps=2", "hydra.run.dir=run", cwd=tmp_path)
    (folder,) = (tmp_path / "data" / "prepared").glob("*.shared")
    shutil.rmtree(folder)
    completed("train", "resume=run", "steps=4", cwd=tmp_path)
    assert folder.is_dir()
