"""State of somebody else's checkpoint: each optimizer refuses what is not of its own making, and counts are counts."""

import copy
import io
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from built import ONE_LAYER, built
from conftest import completed, failed, snapshot
from test_optimizers import NAMES, PACKAGES, options

from headcount.training.loaded_state import check_counts, check_optimizer_state
from headcount.training.module import parameter_groups
from headcount.training.seal import seal

OPTIMIZERS = ["adamw", *NAMES]


def task_of(name: str) -> SimpleNamespace:
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    torch.manual_seed(0)
    return SimpleNamespace(model=built("model/nano", vocab_size=40, **ONE_LAYER), optimizer_factory=optimizer(name))


def optimizer(name: str):
    return built(f"optimizer/{name}")


def trained(task, steps: int = 3, state: dict | None = None) -> dict:
    """The optimizer's state after some steps, as a checkpoint gives it back. The last weight never has a gradient."""
    begun = task.optimizer_factory(parameter_groups(task.model, task.optimizer_factory))
    if state is not None:
        begun.load_state_dict(state)
    getattr(begun, "train", lambda: None)()
    for _ in range(steps):
        for weight in list(task.model.parameters())[:-1]:
            weight.grad = torch.randn_like(weight)
        begun.step()
    content = io.BytesIO()
    torch.save(begun.state_dict(), content)
    content.seek(0)
    return torch.load(content, weights_only=True)


def check(task, state: dict) -> None:
    resumed = task.optimizer_factory(parameter_groups(task.model, task.optimizer_factory))
    resumed.load_state_dict(state)
    check_optimizer_state(task, resumed)


def is_refused(task, state: dict) -> bool:
    try:
        check(task, state)
    except Exception:  # of many classes, where torch itself refuses to load it
        return True
    return False


def of_a_matrix(state: dict) -> dict:
    """The state of a matrix that is not square."""
    tensors = {
        number: [each for each in entry.values() if isinstance(each, torch.Tensor) and each.dim() == 2]
        for number, entry in state["state"].items()
    }
    return state["state"][next(number for number, each in tensors.items() if each and len(set(each[0].shape)) == 2)]


def damaged(state: dict):
    """What is damaged, and the state with it: each entry of a matrix, and each number of the settings."""
    for name, value in of_a_matrix(state).items():
        for what, other in (
            ("missing", None),
            ("text", "x"),
            ("of other weights", _reshaped(value)),
            ("without its numbers", _expanded(value)),
        ):
            spoiled = copy.deepcopy(state)
            entry = of_a_matrix(spoiled)
            entry.update({name: other}) if other is not None else entry.pop(name)
            if other is not None or what == "missing":
                yield f"{name} {what}", spoiled
    for name in state["param_groups"][0]:
        if name not in ("params", "initial_lr"):
            spoiled = copy.deepcopy(state)
            spoiled["param_groups"][0][name] = "x"
            yield f"{name} text", spoiled


def _reshaped(value):
    if isinstance(value, list):
        return [torch.zeros(3, 5) for _ in value]
    return torch.zeros(3, 5) if isinstance(value, torch.Tensor) else None


def _expanded(value):
    return torch.zeros(1).expand(value.shape) if isinstance(value, torch.Tensor) and value.dim() else None


@pytest.mark.medium
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_state_of_its_own_making_is_taken_and_left_as_it_is(name, steps):
    task = task_of(name)
    state = trained(task, steps)
    resumed = task.optimizer_factory(parameter_groups(task.model, task.optimizer_factory))
    resumed.load_state_dict(state)
    before, weights = copy.deepcopy(resumed.state_dict()), [weight.clone() for weight in task.model.parameters()]
    check_optimizer_state(task, resumed)
    assert str(before) == str(resumed.state_dict())
    assert all(map(torch.equal, weights, task.model.parameters()))


@pytest.mark.medium
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_state_that_is_not_of_its_making_is_refused_or_does_no_harm(name):
    task = task_of(name)
    taken = {what: state for what, state in damaged(trained(task)) if not is_refused(task, state)}
    assert not [what for what in taken if what.endswith(("of other weights", "without its numbers"))]
    for state in taken.values():
        trained(task, steps=12, state=state)  # such as one with text for a switch, which is on then


@pytest.mark.parametrize(
    ("name", "count"), [("nadamw", ("state", "step")), ("soap", ("group", "step")), ("schedule_free", ("group", "k"))]
)
def test_a_count_of_steps_below_zero_is_refused(name, count):
    task = task_of(name)
    state, (place, key) = trained(task), count
    for entry in state["state"].values() if place == "state" else state["param_groups"]:
        entry[key] = torch.tensor(-5.0) if place == "state" else -5
    with pytest.raises(ValueError, match="a step of the optimizer fails with its state: "):
        check(task, state)


@pytest.mark.medium
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_run_with_another_state_is_refused_in_one_line_and_left_as_it_was(name, tiny, tmp_path):
    run(tiny, tmp_path, *options(name))

    def change(state: dict) -> None:
        for entry in state["optimizer_states"][0]["state"].values():
            entry.update({key: torch.zeros(3) for key, value in entry.items() if isinstance(value, torch.Tensor)})

    respoil(tmp_path, change)
    before = snapshot(tmp_path / "run")
    (line,) = failed("train", "resume=run", "steps=8", cwd=tmp_path)
    assert line.startswith(
        "run/checkpoints/last.ckpt: its state does not fit run/config.yaml (the optimizer's state is that of other"
    )
    assert snapshot(tmp_path / "run") == before


@pytest.mark.parametrize("value", ["x", None, True, -1, float("nan"), float("inf"), 0.5, [3]])
def test_a_count_is_a_whole_number_from_0_on(value):
    own = {"a": {"count": 0, "seconds": 0.0}, "name": "x", "best": None}
    for good in ({}, {"a": {"count": 3, "seconds": 4}, "name": 3, "best": 2.0}, {"a": {"seconds": 0.5}}):
        check_counts(good, own)
    with pytest.raises(ValueError, match="count is no number from 0 on"):
        check_counts({"a": {"count": value}}, own)


@pytest.mark.medium
@pytest.mark.parametrize(("averaging", "name", "value"), [("ema", "steps", -3), ("ema", "mean", "whole numbers")])
def test_an_average_that_cannot_go_on_is_refused(averaging, name, value, tiny, tmp_path):
    run(tiny, tmp_path, f"averaging={averaging}")

    def change(state: dict) -> None:
        average = state["callbacks"]["ExponentialAverage"]
        whole = {each: tensor.long() for each, tensor in average["mean"].items()}
        average[name] = whole if value == "whole numbers" else value

    respoil(tmp_path, change)
    (line,) = failed("train", "resume=run", "steps=8", cwd=tmp_path)
    assert line.startswith("run/checkpoints/last.ckpt: its state does not fit run/config.yaml (")


@pytest.mark.medium
def test_rates_are_those_of_the_config_and_not_of_the_checkpoint(tiny, tmp_path):
    run(tiny, tmp_path)
    shutil.copytree(tmp_path / "run", tmp_path / "other")
    respoil(tmp_path, lambda state: state["lr_schedulers"][0].update(base_lrs=["x", 3.0]))
    for folder in ("run", "other"):
        completed("train", f"resume={folder}", "steps=8", cwd=tmp_path)
    one, other = ((tmp_path / folder / "model.safetensors").read_bytes() for folder in ("run", "other"))
    assert one == other


def run(tiny, folder: Path, *options: str) -> None:
    completed("train", *tiny, *options, "steps=4", "hydra.run.dir=run", cwd=folder)


def respoil(folder: Path, change) -> None:
    """Change what a checkpoint holds, and write a right checksum."""
    path = folder / "run" / "checkpoints" / "last.ckpt"
    state = torch.load(path, weights_only=True)
    change(state)
    torch.save(state, path)
    seal(path)
