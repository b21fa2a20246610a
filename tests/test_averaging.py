"""Averaging of weights: checkpoints, exponential, best checkpoint."""

import math
from types import SimpleNamespace

import pytest
import torch
from built import built
from safetensors.torch import save_file
from toy import one_number


def snapshots(average, folder, *steps: int):
    """The average with snapshots of these steps on disk, whose weight is the number of the step."""
    average.directory = folder
    for step in steps:
        save_file({"weight": torch.full((1, 1), float(step))}, folder / f"{step:08d}.safetensors")
    return average


@pytest.mark.parametrize(
    ("step", "now", "mean", "left"), [(30, 30, 25, [20, 30]), (20, 20, 15, [10, 20]), (35, 50, 40, [30, 35])]
)
def test_the_mean_is_of_the_last_snapshots_and_the_weights_of_now(tmp_path, step, now, mean, left):
    """Later snapshots are of a run that was killed and went on from before them; old ones may be left, too."""
    average = snapshots(built("averaging/checkpoints", last=2, every=10), tmp_path, 10, 20, 30)
    assert average.weights(one_number(now), step)["weight"].item() == mean
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{each:08d}.safetensors" for each in left]


def planned(folder, steps: int, **settings):
    """The average of a run of so many steps."""
    average = built("averaging/checkpoints", **settings)
    average.setup(SimpleNamespace(max_steps=steps, default_root_dir=folder), None, "fit")
    return average


def test_a_run_made_longer_averages_no_snapshot_from_before_its_window(tmp_path):
    average = planned(tmp_path, 80, last=2, share=0.5)  # every 20 steps, two of them
    for step in (20, 40, 60, 80):
        average.weights(one_number(step), step)
    average = planned(tmp_path, 240, last=2, share=0.5)  # every 60 steps
    assert average.weights(one_number(100), 100)["weight"].item() == 80  # of 60 and 100
    average.weights(one_number(180), 180)
    assert average.weights(one_number(240), 240)["weight"].item() == 210


@pytest.mark.parametrize(
    ("steps", "spacing"), [(2000, (25, 10)), (18000, (225, 10)), (100, (1, 10)), (140, (2, 9)), (8, (1, 1))]
)
def test_checkpoints_are_spread_over_a_share_of_the_run(steps, spacing):
    by_share, by_number = (planned("", steps, last=10, share=0.125, every=every) for every in (None, 100))
    assert (by_share.every, by_share.count) == spacing
    assert (by_number.every, by_number.count) == (100, 10)


@pytest.mark.parametrize(("steps", "decay"), [(2000, 0.99), (18000, 1 - 1 / 900), (8, 0.0)])
def test_a_moving_mean_is_as_long_as_a_share_of_the_run(steps, decay):
    average = built("averaging/ema", share=0.05)
    average.on_train_start(SimpleNamespace(max_steps=steps), module_of(one_number(0)))
    assert average.decay == pytest.approx(decay)


def module_of(model: torch.nn.Module) -> SimpleNamespace:
    return SimpleNamespace(model=model, skipped=SimpleNamespace(in_a_row=0), device=torch.device("cpu"))


def trained(average, tmp_path, steps: int, batches_a_step: int, process: int = 0, skipped: int = 0) -> None:
    """The calls of Lightning in a run whose only weight is the number of the step, with gradients accumulated."""
    trainer = SimpleNamespace(
        default_root_dir=tmp_path,
        max_steps=steps,
        accumulate_grad_batches=batches_a_step,
        is_global_zero=process == 0,
        global_step=0,
    )
    module = module_of(one_number(0))
    average.setup(trainer, module, "fit")
    average.on_train_start(trainer, module)
    for batch in range(steps * batches_a_step):
        trainer.global_step = (batch + 1) // batches_a_step
        module.skipped.in_a_row = int(trainer.global_step == skipped)
        module.model.weight.data.fill_(trainer.global_step)
        average.on_train_batch_end(trainer, module, None, None, batch)


@pytest.mark.parametrize(
    ("last", "batches_a_step", "process", "taken"),
    [(3, 1, 0, [2, 4, 6]), (3, 3, 0, [2, 4, 6]), (1, 1, 0, []), (3, 1, 1, [])],
)
def test_a_snapshot_is_taken_once_every_few_steps(tmp_path, monkeypatch, last, batches_a_step, process, taken):
    average, steps = built("averaging/checkpoints", last=last, every=2), []
    monkeypatch.setattr(average, "snapshot", lambda model, step: steps.append((step, model.weight.item())))
    trained(average, tmp_path, 7, batches_a_step, process)
    assert steps == [(step, step) for step in taken]


# (3 + 2 / 2 + 1 / 4) / (1 + 1 / 2 + 1 / 4), and without the second: (3 + 1 / 2) / (1 + 1 / 2)
@pytest.mark.parametrize(("batches_a_step", "skipped", "mean"), [(1, 0, 17 / 7), (3, 0, 17 / 7), (1, 2, 7 / 3)])
def test_a_moving_mean_follows_each_step_that_is_not_skipped(tmp_path, batches_a_step, skipped, mean):
    average = built("averaging/ema", decay=0.5)
    assert average.weights(one_number(7), 0)["weight"].item() == 7  # nothing followed yet
    trained(average, tmp_path, 3, batches_a_step, skipped=skipped)
    assert average.weights(one_number(0), 3)["weight"].item() == pytest.approx(mean)
    other = built("averaging/ema", decay=0.5)
    trained(other, tmp_path, 3, batches_a_step, process=1)
    assert other.steps == 0


@pytest.mark.medium
def test_a_moving_mean_of_bfloat16_weights_moves():
    average, module = built("averaging/ema", decay=0.999), module_of(one_number(1.0).bfloat16())
    trainer = SimpleNamespace(max_steps=2001, accumulate_grad_batches=1, is_global_zero=True)
    average.on_train_start(trainer, module)
    for value in (1.0, *[1.25] * 2000):
        module.model.weight.data.fill_(value)
        average.on_train_batch_end(trainer, module, None, None, 0)
    assert average.weights(module.model, 2001)["weight"].item() == pytest.approx(1.25, abs=0.001)


LOSSES = [4.0, 3.0, 2.5, 2.0, 6.0]
SOME_NOT_FINITE = [math.nan, 4.0, math.nan, 3.0, 3.5]  # the first must not be the best for ever


@pytest.mark.parametrize(
    ("metric", "losses", "kept"), [("bleu", LOSSES, 2.0), ("loss", LOSSES, 4.0), ("loss", SOME_NOT_FINITE, 4.0)]
)
def test_the_best_of_the_validations(metric, losses, kept):
    best = built("averaging/best", metric=metric)
    assert best.weights(one_number(9), 0)["weight"].item() == 9
    trainer = SimpleNamespace(is_global_zero=True, callback_metrics={})
    for step, (bleu, loss) in enumerate(zip((10, 30, 30, 20, 5), losses, strict=True), start=1):
        trainer.callback_metrics = {"valid/bleu": torch.tensor(bleu), "valid/loss": torch.tensor(loss)}
        best.on_validation_end(trainer, SimpleNamespace(model=one_number(step)))
    assert best.weights(one_number(9), 5)["weight"].item() == kept
