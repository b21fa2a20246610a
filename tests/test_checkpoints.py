"""Checkpoints, curves, patience and best weights: training of one number, killed or stopped at every moment."""

import csv
import shutil
import signal
from functools import cache
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import pytest
import pytorch_lightning as pl
import torch
from omegaconf import OmegaConf
from pytorch_lightning.callbacks import LambdaCallback
from safetensors.torch import load_file

from headcount.errors import InputError
from headcount.run.build import build_parts
from headcount.run.curves import begin_curves, whole_rows
from headcount.run.resume import keep_as_last, newest_checkpoint
from headcount.training import checkpoint
from headcount.training.callbacks import SkippedSteps
from headcount.training.checkpoint import LastCheckpoint, check_checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:Experiment logs directory", "ignore::DeprecationWarning:.*_pytree")


class Killed(BaseException):
    """Nothing is saved on the way out."""


class Numbers(NamedTuple):
    values: torch.Tensor
    tokens: int


class OneNumber(pl.LightningModule):
    """Learns one number. It gets better and worse again, so validation has a best and a patience to run out."""

    def __init__(self):
        super().__init__()
        self.model = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(self.model.weight)
        self.skipped = SkippedSteps(stop_after=5)
        self.rate = 0.1

    def recent_loss(self):
        return 0.0

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def training_step(self, batch, batch_idx):
        self.of_step = (self.model.weight * (2.4 - batch.values)).mean()
        return self.of_step

    def optimizer_step(self, epoch, batch_idx, optimizer, closure):
        optimizer.step(closure)
        self.write({"train/loss": self.of_step.item()}, self.trainer.global_step)

    def write(self, figures, step):
        for logger in self.loggers:
            logger.log_metrics(figures, step)

    def validation_step(self, batch, batch_idx):
        self.loss = ((self.model.weight - 0.3) ** 2).mean()

    def on_validation_epoch_end(self):
        figures = {"valid/loss": self.loss, "valid/bleu": -self.loss}
        self.log_dict(figures, logger=False)
        self.write(figures, self.trainer.global_step - 1)


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, start):
        self.start = start

    def __iter__(self):
        for number in range(self.start, 10**6):
            yield Numbers(torch.full((1, 1), float(number % 7)), 10)


def at(hook, step, act):
    """A callback that does something at a hook of a step, once."""
    done = []

    def run(trainer, *_):
        if trainer.global_step == step and not done:
            done.append(act)
            act()

    return LambdaCallback(**{hook: run})


@pytest.fixture(scope="module")
def numbers(home):
    """A function that trains in a directory, from its last checkpoint on if there is one; what was built for it."""
    base = OmegaConf.load(home / "runs" / "second" / "config.yaml")
    base.merge_with_dotlist(["checkpoint.every=4", "validation.every=4", "validation.patience=5", "steps=18"])
    base.averaging = {"kind": "best", "metric": "loss"}

    def train(directory: Path, *settings: str, first=(), last=()):
        config = OmegaConf.merge(base, OmegaConf.from_dotlist(list(settings)))
        train.parts = parts = build_parts(config, directory)
        begun = (directory / "checkpoints").exists()
        path, step, _ = newest_checkpoint(directory) if begun else (None, 0, [])

        def begin(trainer, _):
            trainer.loggers = parts.loggers
            begin_curves(parts.loggers, step)

        parts.trainer.callbacks = [LambdaCallback(on_train_start=begin), *first, *parts.trainer.callbacks, *last]
        parts.task = OneNumber()
        loader = torch.utils.data.DataLoader(Stream(step * config.trainer.accumulate_grad_batches), batch_size=None)
        valid = torch.utils.data.DataLoader([Numbers(torch.zeros(1, 1), 10)] * 2, batch_size=None)
        parts.trainer.fit(parts.task, loader, valid, ckpt_path=path)
        return parts

    return train


def rows(directory):
    with (directory / "logs" / "metrics.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def left(parts):
    """All that must not depend on whether the run was killed."""
    (stopping,) = parts.trainer.early_stopping_callbacks
    averaged = parts.averaging.weights(parts.task.model, 0)["weight"].item()
    weights = (parts.task.model.weight.item(), averaged, parts.averaging.best)
    counts = (stopping.wait_count, stopping.best_score.item(), parts.trainer.global_step, parts.progress.tokens)
    return weights, counts, rows(Path(parts.trainer.default_root_dir))


@pytest.fixture(scope="module")
def whole(numbers, tmp_path_factory):
    """A function: what a run with these settings leaves that was never killed."""
    return cache(lambda *settings: left(numbers(tmp_path_factory.mktemp("whole"), *settings)))


def die():
    raise Killed


MOMENTS = [
    *((place, "on_train_batch_end", step) for place in ("first", "last") for step in (5, 8)),
    *(("first", hook, 8) for hook in ("on_validation_start", "on_validation_batch_end")),
    *((place, hook, 8) for hook in ("on_validation_end", "on_train_batch_start") for place in ("first", "last")),
    *(("first", "on_train_batch_start", 6), ("last", "on_validation_end", 16), ("first", "on_train_end", 18)),
]


@pytest.mark.medium
@pytest.mark.parametrize(("place", "hook", "step"), MOMENTS)
def test_a_run_killed_at_any_moment_leaves_what_a_run_never_killed_leaves(numbers, whole, tmp_path, place, hook, step):
    with pytest.raises(Killed):
        numbers(tmp_path, **{place: [at(hook, step, die)]})
    assert left(numbers(tmp_path)) == whole()


@pytest.mark.medium
@pytest.mark.parametrize("renamed", ["last.ckpt", "last-1.ckpt"])
def test_a_run_killed_while_it_saves_has_a_checkpoint(numbers, whole, tmp_path, monkeypatch, renamed):
    rename, saves = Path.replace, []

    def replace(self, target):
        saves.append(target)
        if [path.name for path in saves].count(renamed) == 2:
            raise Killed
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replace)
        with pytest.raises(Killed):
            numbers(tmp_path)
    assert left(numbers(tmp_path)) == whole()
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["last-1.ckpt", "last.ckpt"]


IN_HALVES = ("validation.every=2", "trainer.accumulate_grad_batches=2")
ODD = ("validation.every=3", "checkpoint.every=2")  # some steps are validated, some saved, some both
SIGNALS = [  # after which step the run has stopped
    ("first", "on_train_batch_start", 5, signal.SIGUSR1, (), 6),
    ("first", "on_train_batch_start", 7, signal.SIGINT, (), 8),
    ("last", "on_train_batch_end", 8, signal.SIGTERM, (), 9),
    ("first", "on_validation_batch_start", 8, signal.SIGTERM, IN_HALVES, 9),
    ("first", "on_validation_batch_start", 18, signal.SIGTERM, IN_HALVES, 18),
    ("first", "on_train_batch_start", 8, signal.SIGTERM, ODD, 9),
    ("first", "on_train_end", 18, signal.SIGTERM, (), 18),  # it waits for the last checkpoint
]


@pytest.mark.medium
@pytest.mark.parametrize(("place", "hook", "step", "number", "settings", "end"), SIGNALS)
def test_a_signal_stops_after_the_step_in_hand(numbers, whole, tmp_path, place, hook, step, number, settings, end):
    """A cluster may send it to a process and to its parent, which hands it on: twice at once is once."""
    before = signal.getsignal(number)
    twice = lambda: [signal.raise_signal(number) for _ in range(2)]  # noqa: E731
    numbers(tmp_path, *settings, **{place: [at(hook, step, twice)]})
    assert numbers.parts.interrupt.exit_code == 128 + number
    assert newest_checkpoint(tmp_path)[1] == end
    signal.signal(number, before)
    assert left(numbers(tmp_path, *settings)) == whole(*settings)


@pytest.mark.medium
def test_a_checkpoint_is_written_after_so_many_minutes_as_well(numbers, whole, tmp_path, monkeypatch):
    saved, clock, save = [], [0.0], LastCheckpoint.save

    def noted(self, trainer):
        saved.append(trainer.global_step)
        save(self, trainer)

    def seconds():
        clock[0] += 9
        return clock[0]

    monkeypatch.setattr(checkpoint.time, "monotonic", seconds)
    monkeypatch.setattr(LastCheckpoint, "save", noted)
    numbers(tmp_path, "checkpoint.every=1000", "checkpoint.every_minutes=1")
    assert len(saved) > 2
    assert saved[-1] == 18
    assert left(numbers(tmp_path)) == whole()


@pytest.mark.medium
def test_patience_is_that_of_the_config(numbers, tmp_path):
    short = ("validation.every=1", "validation.patience=2")
    stopped = numbers(tmp_path, *short).trainer.global_step
    assert 2 < stopped < 12
    assert numbers(tmp_path, *short).trainer.global_step == stopped  # it is used up
    assert numbers(tmp_path, "validation.every=1", "validation.patience=3").trainer.global_step > stopped


@pytest.mark.medium
def test_the_weights_of_the_steps_to_keep_are_files(numbers, tmp_path):
    numbers(tmp_path, "checkpoint.keep=[0,3,8]")
    kept = {path.name: load_file(path)["weight"] for path in tmp_path.glob("checkpoints/step-*")}
    assert set(kept) == {f"step-{step}.safetensors" for step in (0, 3, 8)}
    assert kept["step-0.safetensors"].item() == 0.0 != kept["step-3.safetensors"].item()


@pytest.fixture(scope="module")
def killed(numbers, tmp_path_factory):
    """A run that was killed at step 14."""
    folder = tmp_path_factory.mktemp("killed")
    with pytest.raises(Killed):
        numbers(folder, first=[at("on_train_batch_end", 14, die)])
    return folder


@pytest.mark.medium
@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: data.replace(b"step", b"stop", 1)]
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(numbers, whole, killed, tmp_path, damage):
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    last, before = (tmp_path / "checkpoints" / name for name in ("last.ckpt", "last-1.ckpt"))
    assert newest_checkpoint(tmp_path) == (last, 12, [])
    last.write_bytes(damage(last.read_bytes()))
    path, step, (note,) = newest_checkpoint(tmp_path)
    assert (path, step) == (before, 8)
    assert "last.ckpt is damaged (" in note
    assert note.endswith("last-1.ckpt, step 8")
    keep_as_last(path)
    assert left(numbers(tmp_path)) == whole()
    for each in (last, before):
        each.write_bytes(damage(each.read_bytes()))
    with pytest.raises(InputError, match=r"^.*last\.ckpt is damaged .*last-1\.ckpt is damaged .*start anew.*$"):
        newest_checkpoint(tmp_path)


def test_a_changed_byte_of_a_weight_is_detected(tmp_path):
    path, weight = tmp_path / "last.ckpt", torch.randn(40, 40)
    torch.save({"global_step": 3, "weight": weight}, path)
    check_checkpoint(path)
    content = bytearray(path.read_bytes())
    content[content.index(weight.numpy().tobytes()) + 77] ^= 4
    path.write_bytes(content)
    with pytest.raises(BadZipFile):
        check_checkpoint(path)


def test_a_line_of_the_curves_that_was_written_in_part_is_left_out(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_bytes(b"epoch,step,train/loss\r\n0,0,5.5\r\n0,x,5\r\n0,1\r\n0,1,5.25\r\n0,2,5.1")
    assert [row["train/loss"] for row in whole_rows(path)] == ["5.5", "5.25"]
    for content in (b"", b"epoch,st", b"\0\0\0", b"\xff\n"):
        path.write_bytes(content)
        assert whole_rows(path) == []
