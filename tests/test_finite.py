"""Divergence: steps without finite gradients are skipped, or training stops; what it leaves can be used."""

import json
import re
from collections.abc import Collection
from pathlib import Path

import pytest
import torch
from conftest import completed, failed
from torch.utils._pytree import tree_leaves

from headcount.errors import InputError
from headcount.training.callbacks import SkippedSteps
from headcount.training.checkpoint import LastCheckpoint
from headcount.training.module import TranslationTask


@pytest.mark.parametrize("norm", [float("nan"), float("inf")])
def test_steps_in_a_row_end_training_and_a_finite_one_begins_a_new_row(norm):
    skipped = SkippedSteps(3)
    norms = [1e30, norm, norm, 1.0]
    assert [skipped.skips(4, 1.0, each, 0.01) for each in norms] == [False, True, True, False]
    assert (skipped.in_a_row, skipped.total) == (0, 2)
    other = SkippedSteps(3)
    other.load_state_dict(skipped.state_dict())
    for each in (skipped, other):
        assert [each.skips(4, 1.0, norm, 0.01) for _ in range(2)] == [True, True]
        with pytest.raises(InputError, match=r"^step 4: .*: no finite gradients in 3 steps in a row: diverged"):
            each.skips(4, 1.0, norm, 0.01)


def diverge_at(monkeypatch, steps: Collection[int], where: str = "loss") -> None:
    """Loss or gradient of the first micro-batch of some optimizer steps, from 1, is not a number."""
    whole = TranslationTask.training_step

    def broken(self, batch, batch_idx):
        loss = whole(self, batch, batch_idx)
        number, part = divmod(batch_idx, self.trainer.accumulate_grad_batches)
        if number + 1 not in steps or part:
            return loss
        if where == "loss":
            self._of_step[-1] *= float("nan")
            return loss * float("nan")
        loss.register_hook(lambda gradient: gradient * float("inf"))
        return loss

    monkeypatch.setattr(TranslationTask, "training_step", broken)


@pytest.mark.medium
@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_training_that_diverges_stops_in_one_line_and_saves_nothing_of_it(tiny, tmp_path, monkeypatch, where):
    diverge_at(monkeypatch, range(5, 9), where)
    options = ("checkpoint.every=1", "divergence.stop_after=2", "hydra.run.dir=run")
    (line,) = failed("train", *tiny, *options, cwd=tmp_path)
    assert line.startswith(f"step 6: loss {'nan' if where == 'loss' else ''}")
    assert re.search(r"at learning rate [\d.e-]+: no finite gradients in 2 steps .* Try a smaller optimizer.lr", line)
    state = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert (state["global_step"], state["skipped_steps"]) == (4, {"total": 0, "in_a_row": 0})
    assert all(tensor.isfinite().all() for tensor in state["state_dict"].values())
    assert not (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.medium
@pytest.mark.parametrize("given", [("validation.every=4",), ("steps=3", "validation.every=9", "averaging.kind=best")])
def test_a_model_that_diverged_ends_a_validation_or_the_scoring_in_one_line(tiny, tmp_path, given):
    """The weights overflow, and the steps in a row that end training are not reached."""
    options = ("optimizer.lr=1e38", "schedule.kind=constant", "schedule.warmup_steps=1")
    (line,) = failed("train", *tiny, *options, *given, "hydra.run.dir=run", cwd=tmp_path)
    assert line.startswith("step 1: after it the model's probabilities are no finite numbers: diverged. Try a smaller")


def slow(name: str):
    return pytest.param(name, marks=pytest.mark.slow)


@pytest.mark.medium
@pytest.mark.parametrize("name", ["adamw", "muon", *map(slow, ("nadamw", "schedule_free", "soap"))])
def test_a_skipped_step_changes_no_weight_state_or_average(name, tiny, tmp_path, monkeypatch):
    diverge_at(monkeypatch, [1, 4, 5], "gradient")
    averaging = "none" if name == "schedule_free" else "ema"
    given = (*tiny, f"optimizer={name}", f"averaging.kind={averaging}", "schedule.kind=constant")
    given += ("schedule.warmup_steps=2", "checkpoint.every=1")
    completed("train", *given, "steps=5", "hydra.run.dir=half", cwd=tmp_path)
    before, skipped = (changing(tmp_path / "half", name) for name in ("last-1", "last"))
    assert len(before) > 50
    assert before == skipped
    completed("train", "resume=half", "steps=7", cwd=tmp_path)
    completed("train", *given, "steps=7", "hydra.run.dir=whole", cwd=tmp_path)
    resumed, whole = (changing(tmp_path / run, "last") for run in ("half", "whole"))
    assert resumed == whole
    assert sum(one != other for one, other in zip(skipped, whole, strict=True)) > len(whole) / 2
    state = torch.load(tmp_path / "half" / "checkpoints" / "last.ckpt", weights_only=True)
    assert state["skipped_steps"] == {"total": 3, "in_a_row": 0}


def changing(run: Path, name: str) -> list[object]:
    """All that an optimizer step changes in a checkpoint: weights, optimizer state, averages."""
    state = torch.load(run / "checkpoints" / f"{name}.ckpt", weights_only=True)
    averages = {key: each for key, each in state["callbacks"].items() if "Average" in key}
    leaves = tree_leaves([state["state_dict"], state["optimizer_states"], averages])
    return [leaf.tolist() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


@pytest.mark.medium
def test_skipped_steps_are_counted_and_shown_and_no_checkpoint_follows_one(tiny, tmp_path, monkeypatch, recwarn):
    """With micro-batches, in bfloat16."""
    diverge_at(monkeypatch, [1, 2, 6])
    saved, save = [], LastCheckpoint.save
    note = lambda self, trainer: (saved.append(trainer.global_step), save(self, trainer))  # noqa: E731
    monkeypatch.setattr(LastCheckpoint, "save", note)
    options = ("trainer.accumulate_grad_batches=2", "trainer.precision=bf16-mixed", "checkpoint.every=2")
    result = completed("train", *tiny, *options, "hydra.run.dir=run", cwd=tmp_path)
    assert saved == [3, 4, 7, 8]  # each waits for the next step that is not skipped
    log = (tmp_path / "run" / "train.log").read_text(encoding="utf-8")
    assert re.findall(r" step (\d): .*: skipped$", log, re.MULTILINE) == ["1", "2", "6"]
    assert re.search(r" step 5 of 8  loss [\d.]+ .* tokens/s  2 skipped  0:\d\d left$", log, re.MULTILINE)
    assert not [each for each in recwarn if "scheduler" in str(each.message)]
    assert "steps skipped, since their gradients were not finite: 3\n" in result.out
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["train"]["skipped_steps"] == 3
    assert metrics["train"]["steps"] == 8
