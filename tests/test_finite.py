"""Divergence: training stops, and what it leaves can be used."""

import re
from types import SimpleNamespace

import pytest
import torch
from conftest import completed, failed

from headcount.training.loss import LabelSmoothing
from headcount.training.module import FiniteSteps, Step


def step(number: int, loss: float, norm: float) -> Step:
    return Step(number, 0.01, torch.tensor(loss), torch.tensor(norm), torch.tensor([7, 3, 5, 1]))


@pytest.mark.parametrize(
    ("loss", "norm"), [(float("nan"), 1.0), (1.0, float("inf")), (float("inf"), 1.0), (1.0, float("nan"))]
)
def test_the_first_step_without_finite_figures_is_named(loss, norm):
    steps = FiniteSteps(lambda row: f"sentence {row}")
    steps.steps = [step(4, 1.0, 1.0), step(5, loss, norm), step(6, float("nan"), float("nan"))]
    with pytest.raises(
        ValueError, match=rf"^step 5: loss {loss:.3g}, gradient norm {norm:.3g} at learning rate 1.00e-02"
    ):
        steps.look()
    steps.look()  # what was looked at is done with


def diverge_at(monkeypatch, call: int, where: str) -> None:
    """Loss or gradient of one training step is not a number."""
    calls = []
    whole = LabelSmoothing.__call__

    def broken(self, hidden, *rest):
        loss, likelihood = whole(self, hidden, *rest)
        calls.append(hidden.requires_grad)
        if sum(calls) != call or not hidden.requires_grad:
            return loss, likelihood
        if where == "loss":
            return loss * float("nan"), likelihood
        loss.register_hook(lambda gradient: gradient * float("inf"))
        return loss, likelihood

    monkeypatch.setattr(LabelSmoothing, "__call__", broken)


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_training_that_diverges_stops_in_one_line_and_saves_nothing_of_it(tiny, tmp_path, monkeypatch, where):
    diverge_at(monkeypatch, 6, where)
    (line,) = failed("train", *tiny, "checkpoint.every=1", cwd=tmp_path)
    assert line.startswith("step 6: loss ")
    assert re.search(r"at learning rate [\d.e-]+, .* its batch has \d+ pairs, rows \d+ 'the \w+", line)
    assert "Try a smaller optimizer.lr" in line
    run = (tmp_path / "runs" / "latest").resolve()
    kept = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    assert kept["global_step"] == 5
    assert all(tensor.isfinite().all() for tensor in kept["state_dict"].values())
    assert not (run / "model.safetensors").exists()


class OnGpu(torch.Tensor):
    """A figure that training would have to wait for."""

    device = SimpleNamespace(type="cuda")


def test_steps_that_nobody_looked_at_are_looked_at_before_validation(tiny, tmp_path, monkeypatch):
    clip = torch.nn.utils.clip_grad_norm_
    monkeypatch.setattr("torch.nn.utils.clip_grad_norm_", lambda *arguments: clip(*arguments).as_subclass(OnGpu))
    diverge_at(monkeypatch, 3, "loss")
    (line,) = failed("train", *tiny, "trainer.log_every_n_steps=100", "checkpoint.every=100", cwd=tmp_path)
    assert line.startswith("step 3: loss nan, gradient norm nan at learning rate ")


@pytest.mark.parametrize("precision", ["bf16-true", pytest.param("64-true", marks=pytest.mark.slow)])
def test_weights_of_another_precision_train_and_are_kept_in_float32(tiny, tmp_path, precision):
    other = completed("train", *tiny, f"trainer.precision={precision}", "averaging=ema", cwd=tmp_path)
    plain = completed("train", *tiny, "averaging=ema", "trainer.precision=32-true", cwd=tmp_path)
    losses = [float(re.search(r"^test.* (\S+)$", each.out, re.MULTILINE)[1]) for each in (other, plain)]
    assert losses[0] == pytest.approx(losses[1], abs=0.05)
