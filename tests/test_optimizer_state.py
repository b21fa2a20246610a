"""Optimizer state of somebody else's checkpoint: each optimizer refuses what is not of its own making, in one line."""

import copy
import io
from types import SimpleNamespace

import pytest
import torch
from built import ONE_LAYER, built
from conftest import completed, failed, snapshot
from test_optimizers import NAMES, PACKAGES, options

from headcount.training.module import parameter_groups
from headcount.training.optimizer_state import check_optimizer_state
from headcount.training.seal import seal

OPTIMIZERS = ["adamw", *NAMES]


def task_of(name: str) -> SimpleNamespace:
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    torch.manual_seed(0)
    return SimpleNamespace(model=built("model/nano", vocab_size=40, **ONE_LAYER), optimizer_factory=optimizer(name))


def optimizer(name: str):
    return built(f"optimizer/{name}")


def trained(task, steps: int = 3) -> dict:
    """The optimizer's state after some steps, as a checkpoint gives it back. The last weight never has a gradient."""
    begun = task.optimizer_factory(parameter_groups(task.model, task.optimizer_factory))
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
        if name not in ("params", "initial_lr", "decoupled_weight_decay"):  # torch's AdamW sets the last one itself
            spoiled = copy.deepcopy(state)
            spoiled["param_groups"][0][name] = "x"
            yield f"{name} text", spoiled


def _reshaped(value):
    if isinstance(value, list):
        return [torch.zeros(3, 5) for _ in value]
    return torch.zeros(3, 5) if isinstance(value, torch.Tensor) else None


def _expanded(value):
    return torch.zeros(1).expand(value.shape) if isinstance(value, torch.Tensor) and value.dim() else None


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


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_state_that_is_not_of_its_making_is_refused(name):
    task = task_of(name)
    spoiled = dict(damaged(trained(task)))
    assert len(spoiled) > 10
    assert [what for what, state in spoiled.items() if not is_refused(task, state)] == []


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


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_run_with_another_state_is_refused_in_one_line_and_left_as_it_was(name, tiny, tmp_path):
    completed("train", *tiny, *options(name), "trainer.max_steps=4", "hydra.run.dir=run", cwd=tmp_path)
    path = tmp_path / "run" / "checkpoints" / "last.ckpt"
    state = torch.load(path, weights_only=True)
    for entry in state["optimizer_states"][0]["state"].values():
        entry.update({key: torch.zeros(3) for key, value in entry.items() if isinstance(value, torch.Tensor)})
    torch.save(state, path)
    seal(path)
    before = snapshot(tmp_path / "run")
    (line,) = failed("train", "resume=run", "trainer.max_steps=8", cwd=tmp_path)
    assert line.startswith(
        "run/checkpoints/last.ckpt: its state does not fit run/config.yaml (the optimizer's state of"
    )
    assert snapshot(tmp_path / "run") == before
