"""Averaging of weights: checkpoints, exponential, best checkpoint."""

import math
from types import SimpleNamespace

import pytest
import torch
from built import built
from safetensors.torch import save_file
from toy import one_number

from headcount.errors import InputError
from headcount.training.averaging import mean_weights


@pytest.mark.medium
def test_a_file_that_is_no_snapshot_is_left_alone(tmp_path):
    average = built("averaging/checkpoints", last=2, every=1)
    average.directory = tmp_path
    (tmp_path / "notes.safetensors").write_bytes(b"x")
    for step in range(1, 5):
        average._snapshot(one_number(1.0), step)
    names = {f"{name}.safetensors" for name in ("00000003", "00000004", "notes")}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_a_run_that_is_killed_before_it_removes_old_snapshots_removes_them_later(tmp_path):
    average = built("averaging/checkpoints", last=2, every=10)
    average.directory = tmp_path
    for step in (10, 20, 30):
        save_file({"weight": torch.full((1, 1), float(step))}, tmp_path / f"{step:08d}.safetensors")
    assert average.weights(one_number(50.0), 30)["weight"].tolist() == [[25]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000020.safetensors", "00000030.safetensors"]


def test_the_mean_is_of_the_last_snapshots_and_the_weights_of_now(tmp_path):
    average = built("averaging/checkpoints", last=2, every=10)
    average.directory = tmp_path
    for step in (10, 20, 30):
        save_file({"weight": torch.full((1, 1), float(step))}, tmp_path / f"{step:08d}.safetensors")
    assert average.weights(one_number(50.0), 20)["weight"].tolist() == [[15]]
    assert average.weights(one_number(50.0), 35)["weight"].tolist() == [[40]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000030.safetensors", "00000035.safetensors"]


@pytest.mark.parametrize(
    ("steps", "spacing"), [(2000, (25, 10)), (18000, (225, 10)), (100, (1, 10)), (140, (2, 9)), (8, (1, 1))]
)
def test_checkpoints_are_spread_over_a_share_of_the_run(steps, spacing):
    average = built("averaging/checkpoints", last=10, share=0.125)
    assert average.spacing(steps) == spacing
    assert built("averaging/checkpoints", last=10, every=100).spacing(steps) == (100, 10)


@pytest.mark.medium
@pytest.mark.parametrize(("steps", "decay"), [(2000, 0.99), (18000, 1 - 1 / 900), (8, 0.0)])
def test_a_moving_mean_is_as_long_as_a_share_of_the_run(steps, decay):
    assert built("averaging/ema", share=0.05).decay_over(steps) == pytest.approx(decay)
    assert built("averaging/ema", decay=0.999).decay_over(steps) == 0.999


def trained(average, tmp_path, steps: int, batches_a_step: int, process: int = 0) -> None:
    """The calls of Lightning in a run whose only weight is the number of the step, with gradients accumulated."""
    trainer = SimpleNamespace(
        default_root_dir=tmp_path,
        max_steps=steps,
        accumulate_grad_batches=batches_a_step,
        is_global_zero=process == 0,
        global_step=0,
    )
    average.setup(trainer, SimpleNamespace(model=one_number(0)), "fit")
    for batch in range(steps * batches_a_step):
        trainer.global_step = (batch + 1) // batches_a_step
        module = SimpleNamespace(model=one_number(trainer.global_step), skipped=SimpleNamespace(last_was_skipped=False))
        average.on_train_batch_end(trainer, module, None, None, batch)


@pytest.mark.parametrize(
    ("last", "batches_a_step", "process", "taken"),
    [(3, 1, 0, [2, 4, 6]), (3, 3, 0, [2, 4, 6]), (1, 1, 0, []), (3, 1, 1, [])],
)
def test_a_snapshot_is_taken_once_every_few_steps(tmp_path, monkeypatch, last, batches_a_step, process, taken):
    average, steps = built("averaging/checkpoints", last=last, every=2), []
    monkeypatch.setattr(average, "_snapshot", lambda model, step: steps.append((step, model.weight.item())))
    trained(average, tmp_path, 7, batches_a_step, process)
    assert steps == [(step, step) for step in taken]


@pytest.mark.parametrize("batches_a_step", [1, 3])
def test_a_moving_mean_follows_once_a_step(tmp_path, batches_a_step):
    average = built("averaging/ema", decay=0.5)
    trained(average, tmp_path, 3, batches_a_step)
    # (3 + 2 / 2 + 1 / 4) / (1 + 1 / 2 + 1 / 4)
    assert average.weights(one_number(0), 3)["weight"].item() == pytest.approx(17 / 7)
    other = built("averaging/ema", decay=0.5)
    trained(other, tmp_path, 3, batches_a_step, process=1)
    assert not other.mean


def test_a_run_made_longer_averages_no_snapshot_from_before_its_window(tmp_path):
    average = built("averaging/checkpoints", last=2, share=0.5)
    average.directory = tmp_path
    average.planned = 80  # every 20 steps, two of them
    for step in (20, 40, 60, 80):
        average.weights(one_number(step), step)
    average.planned = 240  # every 60 steps
    assert average.weights(one_number(100), 100)["weight"].item() == 80  # of 60 and 100
    average.weights(one_number(180), 180)
    assert average.weights(one_number(240), 240)["weight"].item() == 210


@pytest.mark.medium
def test_a_moving_mean_of_bfloat16_weights_moves():
    average = built("averaging/ema", decay=0.999)
    for value in (1.0, *[1.25] * 2000):
        average.follow(one_number(value).bfloat16())
    assert average.weights(one_number(0), 2001)["weight"].item() == pytest.approx(1.25, abs=0.001)


def test_mean_weights_by_hand():
    mean = mean_weights([{"a": torch.tensor([1.0, 2.0])}, {"a": torch.tensor([3.0, 6.0])}])
    assert mean["a"].tolist() == [2, 4]
    assert mean["a"].dtype == torch.float32


def test_a_moving_mean_by_hand():
    average = built("averaging/ema", decay=0.5)
    assert average.weights(one_number(7), 0)["weight"].item() == 7  # nothing followed yet
    for value in (4.0, 8.0, 2.0):
        average.follow(one_number(value))
    # (2 + 8 / 2 + 4 / 4) / (1 + 1 / 2 + 1 / 4)
    assert average.weights(one_number(0), 3)["weight"].item() == pytest.approx(4)


def test_a_moving_mean_resumes_from_a_checkpoint():
    whole, first, second = (built("averaging/ema", decay=0.9) for _ in range(3))
    for value in range(5):
        whole.follow(one_number(value))
        (first if value < 3 else second).follow(one_number(value))
        if value == 2:
            second.load_state_dict(first.state_dict())
    assert torch.equal(whole.weights(one_number(0), 5)["weight"], second.weights(one_number(0), 5)["weight"])


LOSSES = [4.0, 3.0, 2.5, 2.0, 6.0]
SOME_NOT_FINITE = [math.nan, 4.0, math.nan, 3.0, 3.5]  # the first must not be the best for ever


@pytest.mark.parametrize(
    ("metric", "losses", "kept"), [("bleu", LOSSES, 2.0), ("loss", LOSSES, 4.0), ("loss", SOME_NOT_FINITE, 4.0)]
)
def test_the_best_of_the_validations(tmp_path, metric, losses, kept):
    best = built("averaging/best", metric=metric)
    assert best.weights(one_number(9), 0)["weight"].item() == 9
    trainer = SimpleNamespace(default_root_dir=tmp_path, is_global_zero=True, callback_metrics={})
    module = SimpleNamespace(model=one_number(0))
    best.setup(trainer, module, "fit")
    for step, (bleu, loss) in enumerate(zip((10, 30, 30, 20, 5), losses, strict=True), start=1):
        trainer.callback_metrics = {"valid/bleu": torch.tensor(bleu), "valid/loss": torch.tensor(loss)}
        best.on_validation_end(trainer, SimpleNamespace(model=one_number(step)))
    assert best.weights(one_number(9), 5)["weight"].item() == kept
    again = built("averaging/best", metric=metric)  # resumed
    again.setup(trainer, module, "fit")
    again.load_state_dict(best.state_dict())
    assert again.weights(one_number(9), 5)["weight"].item() == kept


@pytest.mark.parametrize("name", ["best", "ema"])
def test_an_average_of_other_weights_is_refused(name, tmp_path):
    average = built(f"averaging/{name}")
    trainer = SimpleNamespace(default_root_dir=tmp_path, max_steps=10)
    average.setup(trainer, SimpleNamespace(model=one_number(0)), "fit")
    for other in ({"weight": torch.zeros(2, 1)}, {"weights": torch.zeros(1, 1)}):
        with pytest.raises(ValueError, match="those of another model"):
            average.load_state_dict({"steps": 1, "mean": other, "best": 1.0, "weights": other})


def test_a_snapshot_of_other_weights_is_named(tmp_path):
    average = built("averaging/checkpoints", last=2, every=1)
    average.directory = tmp_path
    for content in ({"weight": torch.zeros(2, 1)}, {"other": torch.zeros(1, 1)}):
        save_file(content, tmp_path / "00000001.safetensors")
        with pytest.raises(InputError, match=r"00000001.safetensors: no snapshot of this model"):
            average.weights(one_number(1), 2)


@pytest.mark.parametrize(
    ("average", "settings", "message"),
    [
        ("checkpoints", {"last": 0}, r"averaging\.last=0"),
        ("ema", {"decay": 1.0}, r"averaging\.decay=1"),
        ("ema", {"share": 0}, r"averaging\.share=0"),
        ("checkpoints", {"share": 1.5}, r"averaging\.share=1\.5"),
        ("best", {"metric": "chrf"}, r"averaging\.metric=chrf: must be one of bleu, loss"),
    ],
)
def test_settings_out_of_range_are_named(average, settings, message):
    with pytest.raises(ValueError, match=message):
        built(f"averaging/{average}", **settings)
