"""Which weights a run ends with."""

from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from headcount.training.averaging import BestCheckpoint, CheckpointAverage, ExponentialAverage, mean_weights


def one_number(value: float) -> torch.nn.Linear:
    model = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(value)
    return model


def test_the_mean_is_of_the_last_snapshots_and_the_weights_of_now(tmp_path):
    average = CheckpointAverage(last=2, every=10)
    average.directory = tmp_path
    for step in (10, 20, 30):
        save_file({"weight": torch.full((2, 1), float(step))}, tmp_path / f"{step:08d}.safetensors")
    model = torch.nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        model.weight.fill_(50.0)
    assert average.weights(model, 20)["weight"].flatten().tolist() == [15, 15]
    assert average.weights(model, 35)["weight"].flatten().tolist() == [40, 40]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000030.safetensors", "00000035.safetensors"]


def test_mean_weights_by_hand():
    mean = mean_weights([{"a": torch.tensor([1.0, 2.0])}, {"a": torch.tensor([3.0, 6.0])}])
    assert mean["a"].tolist() == [2, 4]
    assert mean["a"].dtype == torch.float32


def test_a_moving_mean_by_hand():
    average = ExponentialAverage(decay=0.5)
    assert average.weights(one_number(7), 0)["weight"].item() == 7  # nothing followed yet
    for value in (4.0, 8.0, 2.0):
        average.follow(one_number(value))
    # (2 + 8 / 2 + 4 / 4) / (1 + 1 / 2 + 1 / 4)
    assert average.weights(one_number(0), 3)["weight"].item() == pytest.approx(4)


def test_a_moving_mean_goes_on_from_a_checkpoint():
    whole, first, second = ExponentialAverage(0.9), ExponentialAverage(0.9), ExponentialAverage(0.9)
    for value in range(5):
        whole.follow(one_number(value))
        (first if value < 3 else second).follow(one_number(value))
        if value == 2:
            second.load_state_dict(first.state_dict())
    assert torch.equal(whole.weights(one_number(0), 5)["weight"], second.weights(one_number(0), 5)["weight"])


@pytest.mark.parametrize(("metric", "kept"), [("bleu", 2.0), ("loss", 4.0)])
def test_the_best_of_the_validations(tmp_path, metric, kept):
    best = BestCheckpoint(metric)
    assert best.weights(one_number(9), 0)["weight"].item() == 9
    trainer = SimpleNamespace(default_root_dir=tmp_path, is_global_zero=True, callback_metrics={})
    best.setup(trainer, None, "fit")
    for step, (bleu, loss) in enumerate([(10, 4.0), (30, 3.0), (30, 2.5), (20, 2.0), (5, 6.0)], start=1):
        trainer.callback_metrics = {"valid/bleu": torch.tensor(bleu), "valid/loss": torch.tensor(loss)}
        best.on_validation_end(trainer, SimpleNamespace(model=one_number(step)))
    assert best.weights(one_number(9), 5)["weight"].item() == kept
    again = BestCheckpoint(metric)  # resumed
    again.setup(trainer, None, "fit")
    again.load_state_dict(best.state_dict())
    assert again.weights(one_number(9), 5)["weight"].item() == kept


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: CheckpointAverage(last=0), r"averaging\.last=0"),
        (lambda: ExponentialAverage(1.0), r"averaging\.decay=1"),
        (lambda: BestCheckpoint("chrf"), r"averaging\.metric=chrf: must be one of bleu, loss"),
    ],
)
def test_what_is_out_of_range_is_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()
