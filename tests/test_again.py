"""The same command again: it resumes its run, begins another beside it, or says what is in the way."""

import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from conftest import command, completed, refused
from safetensors.torch import load_file

from headcount.run import resume
from headcount.training.module import TranslationTask


@pytest.fixture
def stopped(tiny, tmp_path, monkeypatch):
    """A function that runs a command which a cluster stops after step 5."""
    real = TranslationTask.on_train_batch_start

    def stop(task, batch, number):
        if number == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        real(task, batch, number)

    def start(*words: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(TranslationTask, "on_train_batch_start", stop)
            assert command("train", *tiny, *words, cwd=tmp_path).code == 143

    return start


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model.safetensors")


def same(run: Path, other: Path) -> bool:
    one, two = weights(run), weights(other)
    return all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.medium
def test_the_same_command_resumes_its_run_and_does_nothing_once_it_is_finished(tiny, home, tmp_path, stopped, caplog):
    words = ("hydra.run.dir=runs/mine", "if_exists=resume")
    run = tmp_path / "runs" / "mine"
    stopped(*words)
    (run / "checkpoints" / "last.ckpt").rename(run / "checkpoints" / "last-1.ckpt")  # as if killed between two renames
    part = run / "checkpoints" / ".last.ckpt.0123456789abcdef.part"
    part.touch()
    completed("train", *tiny, *words, "threads=1", cwd=tmp_path)
    assert "resuming runs/mine" in caplog.messages
    assert not part.exists()
    assert same(run, home / "runs" / "second")
    before = (run / "metrics.json").stat().st_mtime_ns
    assert completed("train", *tiny, *words, cwd=tmp_path).out == "runs/mine is finished: nothing is left to do\n"
    assert (run / "metrics.json").stat().st_mtime_ns == before
    (line,) = refused("train", *tiny, *words, "model.d_model=32", cwd=tmp_path)
    assert line.startswith("runs/mine holds a run of another config (model.d_model=16, now 32")
    (line,) = refused("train", *tiny, words[0], cwd=tmp_path)
    assert line.startswith("runs/mine holds a run already: resume it with if_exists=resume")
    (line,) = refused("train", *tiny, words[0], "if_exists=maybe", cwd=tmp_path)
    assert line == "if_exists=maybe: must be one of fail, resume, new"


@pytest.mark.medium
def test_auto_resumes_the_newest_run_of_the_same_settings(tiny, home, tmp_path, stopped):
    stopped("resume=auto")
    (first,) = (path for path in (tmp_path / "runs").iterdir() if not path.is_symlink())
    stopped("resume=auto", "seed=2")  # of other settings, so a run of its own
    (tmp_path / "runs" / "damaged").mkdir()
    (tmp_path / "runs" / "damaged" / "config.yaml").write_text("{", encoding="utf-8")
    assert len(list((tmp_path / "runs").iterdir())) == 4
    completed("train", *tiny, "resume=auto", cwd=tmp_path)
    assert len(list((tmp_path / "runs").iterdir())) == 4  # no empty folder is left
    assert same(first, home / "runs" / "second")
    assert (tmp_path / "runs" / "latest").resolve() == first
    completed("train", *tiny, "resume=auto", cwd=tmp_path)  # that one is finished
    assert len(list((tmp_path / "runs").iterdir())) == 5


@pytest.mark.medium
def test_auto_in_a_named_directory_looks_there_alone(tiny, home, tmp_path, stopped):
    words = ("resume=auto", "hydra.run.dir=elsewhere/mine")
    stopped("resume=auto")  # of the same settings, in runs/
    stopped(*words)
    completed("train", *tiny, *words, cwd=tmp_path)
    assert same(tmp_path / "elsewhere" / "mine", home / "runs" / "second")
    assert completed("train", *tiny, *words, cwd=tmp_path).out.startswith("elsewhere/mine is finished")
    (line,) = refused("train", *tiny, *words, "seed=2", cwd=tmp_path)
    assert line.startswith("elsewhere/mine holds a run of another config (seed=1, now 2")


@pytest.mark.medium
def test_an_empty_path_is_not_taken_for_none(tiny, tmp_path):
    assert refused("train", *tiny, "resume=", cwd=tmp_path) == ["resume=: is empty; give a path, or leave it out"]


@pytest.mark.medium
def test_a_new_run_beside_the_one_that_is_there(tiny, tmp_path):
    words = (*tiny, "hydra.run.dir=runs/mine", "steps=4", "if_exists=new")
    for _ in range(2):
        completed("train", *words, cwd=tmp_path)
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"mine", "mine_2", "latest"}
    assert same(tmp_path / "runs" / "mine", tmp_path / "runs" / "mine_2")


@pytest.mark.medium
def test_a_run_that_ended_before_its_first_checkpoint_begins_anew(tiny, home, tmp_path):
    words = (*tiny, "hydra.run.dir=runs/mine", "if_exists=resume")
    run = tmp_path / "runs" / "mine"
    run.mkdir(parents=True)
    (run / "config.yaml").write_bytes((home / "runs" / "second" / "config.yaml").read_bytes())
    old = run / "checkpoints" / "average" / "00000008.safetensors"  # of its last step, by another model
    old.parent.mkdir(parents=True)
    shutil.copy(home / "runs" / "first" / "model.safetensors", old)
    completed("train", *words, cwd=tmp_path)
    assert same(run, home / "runs" / "second")


def test_a_config_that_was_composed_has_no_command_line(monkeypatch):
    monkeypatch.setattr(resume.HydraConfig, "initialized", lambda: False)
    assert resume.command_line() == []
