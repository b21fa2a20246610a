"""State of somebody else's checkpoint: each optimizer refuses what is not of its own making, and counts are counts."""

import copy
import io
from types import SimpleNamespace

import pytest
import torch
from built import ONE_LAYER, built
from conftest import completed, failed, snapshot

from headcount.training.loaded_state import check_counts, check_optimizer_state
from headcount.training.module import parameter_groups
from headcount.training.seal import seal

OPTIMIZERS = ["adamw", "nadamw", "muon", "schedule_free", "soap"]
PACKAGES = {"schedule_free": "schedulefree", "soap": "pytorch_optimizer"}


@pytest.fixture(params=OPTIMIZERS)
def task(request) -> SimpleNamespace:
    if request.param in PACKAGES:
        pytest.importorskip(PACKAGES[request.param])
    torch.manual_seed(0)
    model = built("model/nano", vocab_size=40, **ONE_LAYER)
    return SimpleNamespace(model=model, optimizer_factory=built(f"optimizer/{request.param}"))


def trained(task, steps: int = 3) -> dict:
    """The optimizer's state after some steps, as a checkpoint gives it back. The last weight never has a gradient."""
    optimizer = task.optimizer_factory(parameter_groups(task.model, task.optimizer_factory))
    getattr(optimizer, "train", lambda: None)()
    for _ in range(steps):
        for weight in list(task.model.parameters())[:-1]:
            weight.grad = torch.randn_like(weight)
        optimizer.step()
    content = io.BytesIO()
    torch.save(optimizer.state_dict(), content)
    content.seek(0)
    return torch.load(content, weights_only=True)


def resumed(task, state: dict):
    optimizer = task.optimizer_factory(parameter_groups(task.model, task.optimizer_factory))
    optimizer.load_state_dict(state)
    return optimizer


@pytest.mark.medium
@pytest.mark.parametrize("steps", [0, 3])
def test_a_state_of_its_own_making_is_taken_and_left_as_it_is(task, steps):
    optimizer = resumed(task, trained(task, steps))
    before, weights = copy.deepcopy(optimizer.state_dict()), [weight.clone() for weight in task.model.parameters()]
    check_optimizer_state(task, optimizer)
    assert str(before) == str(optimizer.state_dict())
    assert all(map(torch.equal, weights, task.model.parameters()))


@pytest.mark.medium
@pytest.mark.parametrize("damage", [lambda each: torch.zeros(3, 5), lambda each: torch.zeros(1).expand(each.shape)])
def test_a_state_that_is_not_of_its_making_is_refused(task, damage):
    """Of other weights, or without its numbers: each tensor of a matrix."""
    state = trained(task)
    matrices = [entry for entry in state["state"].values() if any(is_matrix(each) for each in entry.values())]
    for name in [name for name, each in matrices[0].items() if is_matrix(each)]:
        spoiled = copy.deepcopy(state)
        for entry in spoiled["state"].values():
            if is_matrix(entry.get(name)):
                entry[name] = damage(entry[name])
        with pytest.raises((ValueError, RuntimeError)):
            check_optimizer_state(task, resumed(task, spoiled))


def is_matrix(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 2


@pytest.mark.parametrize("value", ["x", None, True, -1, float("nan"), float("inf"), 0.5, [3]])
def test_a_count_is_a_whole_number_from_0_on(value):
    own = {"a": {"count": 0, "seconds": 0.0}, "name": "x", "best": None}
    for good in ({}, {"a": {"count": 3, "seconds": 4}, "name": 3, "best": 2.0}, {"a": {"seconds": 0.5}}):
        check_counts(good, own)
    with pytest.raises(ValueError, match="count is no number from 0 on"):
        check_counts({"a": {"count": value}}, own)


def other_moments(state: dict) -> None:
    for entry in state["optimizer_states"][0]["state"].values():
        entry.update({key: torch.zeros(3) for key, value in entry.items() if isinstance(value, torch.Tensor)})


def negative_count(state: dict) -> None:
    state["callbacks"]["ExponentialAverage"]["steps"] = -3


@pytest.mark.medium
@pytest.mark.parametrize("change", [other_moments, negative_count])
def test_a_run_with_another_state_is_refused_in_one_line_and_left_as_it_was(change, tiny, tmp_path):
    completed("train", *tiny, "averaging.kind=ema", "steps=4", "hydra.run.dir=run", cwd=tmp_path)
    path = tmp_path / "run" / "checkpoints" / "last.ckpt"
    state = torch.load(path, weights_only=True)
    change(state)
    torch.save(state, path)
    seal(path)
    before = snapshot(tmp_path / "run")
    (line,) = failed("train", "resume=run", "steps=8", cwd=tmp_path)
    assert line.startswith("run/checkpoints/last.ckpt: its state does not fit run/config.yaml (")
    assert snapshot(tmp_path / "run") == before
