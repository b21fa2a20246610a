"""Resume: what may change acts, all else is refused, and nothing is touched before the checkpoint has loaded."""

import errno
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
import yaml
from conftest import command, completed, failed, snapshot
from test_end_to_end import config, curves, metrics

from headcount.training.callbacks import TrainingProgress
from headcount.training.module import TranslationTask

pytestmark = pytest.mark.medium


@pytest.fixture
def run(home, tmp_path) -> Path:
    """A run of eight steps, to resume in its own folder."""
    return Path(shutil.copytree(home / "runs" / "second", tmp_path / "runs" / "second"))


def resume(run: Path, *arguments: str, of=completed):
    return of("train", f"resume=runs/{run.name}", *arguments, cwd=run.parents[1])


def refused(run: Path, *arguments: str) -> str:
    """The one line with which a resume is refused, which leaves every file as it was."""
    before = snapshot(run)
    (line,) = resume(run, *arguments, of=failed)
    assert snapshot(run) == before
    return line


def log(run: Path) -> str:
    return (run / "train.log").read_text(encoding="utf-8")


def change(run: Path, act) -> None:
    """Let `act` change the config.yaml of a run."""
    settings = config(run)
    act(settings)
    (run / "config.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")


def rows(run: Path, name: str) -> dict[int, float]:
    return {int(row["step"]): float(row[name]) for row in curves(run) if row[name]}


def same(run: Path, other: Path) -> bool:
    """Weights, curves, translations, scores and counts."""
    names = ("model.safetensors", "logs/metrics.csv", "test.hyp.de", "valid.hyp.de")
    one, two = (metrics(each)["train"]["tokens"] for each in (run, other))
    assert metrics(run)["test"] == metrics(other)["test"]
    return one == two and all((run / name).read_bytes() == (other / name).read_bytes() for name in names)


def test_settings_that_are_learnt_are_refused_in_one_line(run):
    typed = ("optimizer.lr=0.5", "model.d_model=32", "data.cleaning.max_ratio=3", "model=big", "seed=7")
    line = refused(run, *typed, "steps=12")
    for setting in typed:
        assert setting.split("=")[0] in line
    assert "give init_from=" in line


@pytest.mark.parametrize(
    ("spoil", "arguments", "expected"),
    [
        (lambda config: config["model"].update(d_model=32), ("steps=12",), "does not fit the model in"),
        (lambda config: config["data"].update(fingerprint="other"), ("steps=12",), "text of its corpus has changed"),
        (lambda config: None, ("trainer.devices=2", "steps=12"), "1 x 1 x 1 and would be 2 x 1 x 1"),
        (lambda config: None, ("hydra.run.dir=elsewhere", "steps=12"), "has its own directory; leave it out"),
        (lambda config: None, (), "last.ckpt is at step 8 of steps=8: to train on, raise steps"),
        (lambda config: None, ("steps=7",), "is at step 8 of steps=7: to train on"),
    ],
)
def test_a_resume_that_fails_leaves_every_byte_as_it_was(run, text, spoil, arguments, expected):
    change(run, spoil)
    assert expected in refused(run, *(argument.replace("TEXT", str(text)) for argument in arguments))
    assert not (run.parents[1] / "elsewhere").exists()


def test_a_checkpoint_that_cannot_be_read_now_is_not_taken_for_a_damaged_one(run, monkeypatch):
    shutil.copy(run / "checkpoints" / "last.ckpt", run / "checkpoints" / "last-1.ckpt")

    def check(path):
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr("headcount.run.resume.check_checkpoint", check)
    assert "last.ckpt: Input/output error" in refused(run, "steps=12")


def test_text_that_was_moved_is_the_same_text(run, text, tmp_path):
    root = shutil.copytree(text, tmp_path / "moved")
    resume(run, f"++data.root={root}", f"data.directory={tmp_path / 'prepared'}", "steps=9")
    assert config(run)["data"]["root"] == str(root)
    assert list((tmp_path / "prepared" / "prepared").iterdir())
    with (root / "train.de").open("a", encoding="utf-8") as file:
        file.write("der Hund\n")
    assert "has changed since it began" in refused(run, "steps=10")


def test_every_setting_that_may_change_acts(run):
    settings = ("steps=14", "validation.every=3", "validation.samples=1", "validation.metric=bleu")
    rest = ("validation.patience=9", "checkpoint.every=5", "logger=default", "threads=1", "trainer=cpu")
    resume(run, *settings, *rest, "data.workers=1")
    assert metrics(run)["train"]["steps"] == 14
    assert sorted(rows(run, "valid/bleu")) == [3, 7, 8, 11]
    assert sorted(rows(run, "train/loss")) == list(range(14))
    assert list(run.glob("logs/events.out.tfevents.*"))
    assert log(run).rpartition("run directory")[2].count("   source ") == 2
    assert torch.load(run / "checkpoints" / "last-1.ckpt", weights_only=True)["global_step"] == 10
    assert config(run)["resumed"] == [{"after_step": 8, "before": {"steps": 8}}]  # the rest is not learnt


def test_a_schedule_that_had_ended_is_planned_anew_to_its_new_end(tiny, tmp_path):
    ending = (*tiny, "schedule.kind=trapezoid", "schedule.warmup_steps=2")
    for name, steps in {"short": 8, "long": 14}.items():
        completed("train", *ending, f"steps={steps}", f"hydra.run.dir=runs/{name}", cwd=tmp_path)
    run, whole = tmp_path / "runs" / "short", tmp_path / "runs" / "long"
    short, long = rows(run, "train/lr"), rows(whole, "train/lr")
    resume(run, "steps=14")
    assert rows(run, "train/lr") == {**long, **short}
    assert all(long[step] > 0 for step in range(8, 14))
    resume(run, "steps=15", "logger=none")
    assert sorted(rows(run, "train/lr")) == list(range(14))


def test_a_run_that_continues_has_no_score_of_its_former_weights(run, monkeypatch):
    follow, killed = TrainingProgress.on_train_batch_end, []

    def end(self, trainer, *rest):
        if trainer.global_step == 9 and not killed:
            killed.append(True)
            raise RuntimeError("killed")
        if trainer.global_step == 9:
            os.kill(os.getpid(), signal.SIGINT)
        follow(self, trainer, *rest)

    assert {"test", "valid", "config_hash"} <= set(metrics(run))
    with monkeypatch.context() as patch:
        patch.setattr(TrainingProgress, "on_train_batch_end", end)
        with pytest.raises(RuntimeError, match="killed"):
            resume(run, "steps=12")
        assert "config_hash" not in metrics(run)
        assert resume(run, of=command).code == 130
    assert not {"test", "valid", "config_hash"} & set(metrics(run))
    assert not [*run.glob("*.hyp.*"), *run.glob("*.pairs.npz")]


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


def test_the_same_command_resumes_its_run_and_does_nothing_once_it_is_finished(tiny, home, tmp_path, stopped, caplog):
    run, place = tmp_path / "elsewhere" / "mine", "hydra.run.dir=elsewhere/mine"
    stopped("resume=auto")  # of the same settings, in runs/
    stopped(place, "resume=auto")
    (run / "checkpoints" / "last.ckpt").rename(run / "checkpoints" / "last-1.ckpt")  # as if killed between two renames
    part = run / "checkpoints" / ".last.ckpt.0123456789abcdef.part"
    part.touch()
    completed("train", *tiny, place, "resume=auto", "threads=1", cwd=tmp_path)
    assert "resuming elsewhere/mine" in caplog.messages
    assert not part.exists()
    assert same(run, home / "runs" / "second")
    before = snapshot(run)
    again = completed("train", *tiny, place, "resume=auto", cwd=tmp_path)
    assert again.out == "elsewhere/mine is finished: nothing is left to do\n"
    (line,) = failed("train", *tiny, place, "resume=auto", "model.d_model=32", cwd=tmp_path)
    assert line.startswith("elsewhere/mine holds a run of another config (model.d_model=16, now 32")
    (line,) = failed("train", *tiny, place, cwd=tmp_path)
    assert line == "elsewhere/mine holds a run already: continue it with resume=auto, or move it away"
    assert snapshot(run) == before


def test_auto_resumes_the_newest_run_of_the_same_settings(tiny, home, tmp_path, stopped):
    stopped("resume=auto")
    (first,) = (path for path in (tmp_path / "runs").iterdir() if not path.is_symlink())
    stopped("resume=auto", "seed=2")  # of other settings, so a run of its own
    (tmp_path / "runs" / "damaged").mkdir()
    (tmp_path / "runs" / "damaged" / "config.yaml").write_text("{", encoding="utf-8")
    completed("train", *tiny, "resume=auto", cwd=tmp_path)
    assert len(list((tmp_path / "runs").iterdir())) == 4  # no empty folder is left
    assert same(first, home / "runs" / "second")
    assert (tmp_path / "runs" / "latest").resolve() == first
    completed("train", *tiny, "resume=auto", "steps=1", cwd=tmp_path)  # that one is finished, and has other steps
    assert len(list((tmp_path / "runs").iterdir())) == 5
