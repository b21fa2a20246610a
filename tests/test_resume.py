"""Resume: what may change acts, all else is refused, and nothing is touched before the checkpoint has loaded."""

import csv
import errno
import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
import yaml
from conftest import command, completed, failed, rewrite, snapshot

from headcount.training.callbacks import TrainingProgress


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


def config(run: Path):
    return yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))


def change(run: Path, act) -> None:
    """Let `act` change the config.yaml of a run, as an earlier version or a person would have."""
    settings = config(run)
    act(settings)
    (run / "config.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")


def forget_the_text(config) -> None:
    """As earlier versions, which did not record the text."""
    del config["data"]["fingerprint"]


def rows(run: Path, name: str) -> dict[int, float]:
    with (run / "logs" / "metrics.csv").open(encoding="utf-8") as file:
        return {int(row["step"]): float(row[name]) for row in csv.DictReader(file) if row[name]}


@pytest.mark.medium
def test_a_setting_that_cannot_change_is_refused_in_one_line(run):
    typed = ("optimizer.lr=0.5", "model.d_model=32", "data.cleaning.max_ratio=3", "model=big", "seed=7", "name=x")
    line = refused(run, *typed, "steps=12")
    for setting in typed:
        assert setting.split("=")[0] in line
    assert "give init_from=" in line
    ties = ("steps=14", "validation.every=2", "++schedule.steps=14")
    line = refused(run, *ties, "steps=14")
    assert "steps (give steps)" in line
    assert "validation.every (give validation.every)" in line
    assert "schedule.steps (give steps)" in line


@pytest.mark.medium
@pytest.mark.parametrize(
    ("spoil", "arguments", "expected"),
    [
        (lambda config: config["model"].update(d_model=32), (), "does not fit the model in"),
        (lambda config: config["data"].update(fingerprint="other"), (), "the text of its corpus has changed"),
        (forget_the_text, ("++data.root=TEXT/../text0",), "the text of its corpus is not recorded"),
        (lambda config: None, ("trainer.devices=2",), "1 x 1 x 1 and would be 2 x 1 x 1"),
        (lambda config: None, ("logger=mlflow", "logger.mlflow.tracking_uri=none://x"), "logger"),
    ],
)
def test_a_resume_that_fails_leaves_every_byte_as_it_was(run, text, spoil, arguments, expected):
    change(run, spoil)
    arguments = [argument.replace("TEXT", str(text)) for argument in arguments]
    assert expected in refused(run, *arguments, "steps=12")


@pytest.mark.medium
@pytest.mark.parametrize("logger", ["MLFlow", "Wandb"])
def test_a_logger_that_writes_elsewhere_is_not_taken_from_the_config_of_a_run(logger, run):
    node = {"_target_": f"pytorch_lightning.loggers.{logger}Logger", "tracking_uri": "sqlite:////tmp/x.db"}
    change(run, lambda config: config.update(logger={"mine": node}))
    line = refused(run, "steps=12")
    assert line.startswith("runs/second: logger.mine: writes elsewhere than into the run")
    resume(run, "steps=12", "logger=csv")


@pytest.mark.medium
def test_a_checkpoint_that_cannot_be_read_now_is_not_taken_for_a_damaged_one(run, monkeypatch):
    (run / "checkpoints" / "last-1.ckpt").write_bytes((run / "checkpoints" / "last.ckpt").read_bytes())

    def check(path):
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr("headcount.run.resume.check_seal", check)
    assert "last.ckpt: Input/output error" in refused(run, "steps=12")


@pytest.mark.medium
def test_a_checkpoint_that_does_not_load_leaves_every_byte_as_it_was(run):
    path = run / "checkpoints" / "last.ckpt"
    state = torch.load(path, weights_only=True)
    del state["optimizer_states"]
    torch.save(state, path)
    assert "last.ckpt: its state does not fit runs/second/config.yaml (" in refused(run, "steps=12")


@pytest.mark.medium
def test_memory_that_does_not_suffice_is_no_fault_of_a_checkpoint(run, monkeypatch):
    def load(*_, **__):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr("headcount.training.module.TranslationTask.on_fit_start", load)
    (line,) = failed("train", f"resume={run}", "steps=12")
    assert line.startswith("not enough memory; lower data.batch_tokens ")
    assert line.endswith(f"last.ckpt, of step 8, is intact: resume={run}")


@pytest.mark.medium
def test_a_run_goes_on_with_its_own_tokenizer_though_the_text_has_changed(run, text, tmp_path):
    root = Path(shutil.copytree(text, tmp_path / "text"))
    rewrite(root / "train.de", lambda text: text.replace("der", "dieser").replace("sieht", "erblickt"))
    change(run, forget_the_text)
    change(run, lambda config: config["data"].update(root=str(root)))
    before = (run / "tokenizer.model").read_bytes()
    resume(run, "steps=9")
    assert (run / "tokenizer.model").read_bytes() == before
    assert "did not record which text" in (run / "train.log").read_text(encoding="utf-8")


@pytest.mark.medium
def test_text_that_was_moved_is_the_same_text(run, text, tmp_path):
    root = shutil.copytree(text, tmp_path / "moved")
    settings = (f"++data.root={root}", f"data.directory={tmp_path / 'prepared'}", "steps=9")
    resume(run, *settings)
    assert config(run)["data"]["root"] == str(root)
    assert list((tmp_path / "prepared" / "prepared").iterdir())
    with (root / "train.de").open("a", encoding="utf-8") as file:
        file.write("der Hund\n")
    assert "has changed since it began" in refused(run, "steps=10")


@pytest.mark.medium
def test_every_setting_that_may_change_acts(run):
    settings = ("steps=14", "validation.every=3", "validation.samples=1", "validation.metric=bleu")
    rest = ("validation.patience=1", "checkpoint.every=5", "logger=default", "search=greedy", "search.max_extra=1")
    rest = (*rest, "search.max_ratio=0", "data.workers=1", "threads=1", "trainer.accelerator=auto")
    resume(run, *settings, *rest)
    # BLEU of one piece is 0 and stays so: the first validation is the best, the second has no better figure.
    assert json.loads((run / "metrics.json").read_text(encoding="utf-8"))["train"]["steps"] == 12
    assert sorted(rows(run, "valid/bleu")) == [3, 7, 8, 11]
    assert sorted(rows(run, "train/loss")) == list(range(12))
    assert list(run.glob("logs/events.out.tfevents.*"))
    log = (run / "train.log").read_text(encoding="utf-8").rpartition("run directory")[2]
    assert log.count("   source ") == 2
    assert "translating the test split with beam 1" in log
    state = torch.load(run / "checkpoints" / "last-1.ckpt", weights_only=True)
    assert state["global_step"] == 10
    validation = {"every": 4, "metric": "loss", "patience": None}  # samples are only printed
    before = {"search.beam": 5, "search.max_extra": 2, "search.max_ratio": 1, "trainer.accelerator": "cpu"}
    before |= {"steps": 8, **{f"validation.{name}": value for name, value in validation.items()}}
    assert config(run)["resumed"] == [{"after_step": 8, "before": before}]


@pytest.mark.medium
def test_curves_can_be_left_off_and_taken_up(run):
    before = (run / "logs" / "metrics.csv").read_bytes()
    resume(run, "steps=9", "logger=none")
    assert (run / "logs" / "metrics.csv").read_bytes() == before
    resume(run, "steps=10", "logger=csv")
    assert sorted(rows(run, "train/loss")) == [*range(8), 9]


@pytest.mark.medium
@pytest.mark.parametrize("schedule", [pytest.param("cosine", marks=pytest.mark.slow), "trapezoid"])
def test_a_schedule_that_had_ended_is_planned_anew_to_its_new_end(tiny, tmp_path, schedule):
    ending = (*tiny, f"schedule={schedule}", "schedule.warmup_steps=2", "logger=csv")
    for name, steps in {"short": 8, "long": 14}.items():
        completed("train", *ending, f"steps={steps}", f"hydra.run.dir=runs/{name}", cwd=tmp_path)
    run, whole = tmp_path / "runs" / "short", tmp_path / "runs" / "long"
    short, long = rows(run, "train/lr"), rows(whole, "train/lr")
    resume(run, "steps=14")
    assert rows(run, "train/lr") == {**long, **short}
    assert all(long[step] > 0 for step in range(8, 14))
    planned = "the schedule was planned for 8 steps and is now planned for 14: after step 8 the learning rate is "
    log = (run / "train.log").read_text(encoding="utf-8")
    assert f"{planned}{long[8]:.3g}, where it would have been 0\n" in log
    settings = config(run)
    assert settings["schedule"]["steps"] == settings["trainer"]["max_steps"] == 14
    assert settings["resumed"] == [{"after_step": 8, "before": {"schedule.steps": 8, "steps": 8}}]
    state = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    assert state["lr_schedulers"][0]["lr_lambdas"] == [None, None, None]


@pytest.mark.medium
@pytest.mark.parametrize(
    ("ends", "planned"),
    [(6, 12), pytest.param(10, 12, marks=pytest.mark.slow), pytest.param(20, 20, marks=pytest.mark.slow)],
)
def test_no_step_of_a_run_made_longer_has_a_rate_of_zero(tiny, tmp_path, ends, planned):
    schedule = ("schedule.kind=cosine", "schedule.warmup_steps=2", f"schedule.steps={ends}")
    given = (*tiny, *schedule, "steps=6", "logger=csv", "hydra.run.dir=runs/a")
    completed("train", *given, cwd=tmp_path)
    run = tmp_path / "runs" / "a"
    resume(run, "steps=12")
    rates = rows(run, "train/lr")
    assert all(rates[step] > 0 for step in range(6, 12))
    assert config(run)["schedule"]["steps"] == planned
    assert ("is now planned for 12" in (run / "train.log").read_text(encoding="utf-8")) == (planned == 12)


@pytest.mark.medium
def test_a_run_that_goes_on_and_stops_keeps_no_score_of_its_former_weights(run, monkeypatch):
    before = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    assert "test" in before
    assert list(run.glob("test.hyp.*"))

    follow = TrainingProgress.on_train_batch_end

    def press(self, trainer, *rest):
        if trainer.global_step == 9:
            os.kill(os.getpid(), signal.SIGINT)
        follow(self, trainer, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingProgress, "on_train_batch_end", press)
        assert resume(run, "steps=12", of=command).code == 130
    after = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    assert after["train"]["steps"] > before["train"]["steps"]
    assert not {"test", "valid", "config_hash"} & set(after)
    assert not [*run.glob("*.hyp.*"), *run.glob("*.pairs.npz")]


@pytest.mark.medium
def test_a_run_that_goes_on_is_not_finished_until_it_is(run, monkeypatch):
    def killed(*_):
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr("headcount.training.callbacks.TrainingProgress.on_train_batch_end", killed)
        with pytest.raises(RuntimeError, match="killed"):
            resume(run, "steps=12")
    assert "config_hash" not in json.loads((run / "metrics.json").read_text(encoding="utf-8"))


@pytest.mark.medium
def test_a_damaged_checkpoint_is_reported_and_the_one_before_is_taken(run):
    last = run / "checkpoints" / "last.ckpt"
    shutil.copy(last, last.with_name("last-1.ckpt"))
    last.write_bytes(last.read_bytes()[:1000])
    resume(run, "steps=9")
    log = (run / "train.log").read_text(encoding="utf-8")
    assert "runs/second/checkpoints/last.ckpt is damaged (" in log
    assert "); resumed from runs/second/checkpoints/last-1.ckpt, step 8\n" in log
    for path in (last, last.with_name("last-1.ckpt")):
        path.write_bytes(b"")
    assert "start anew" in refused(run, "steps=10")
