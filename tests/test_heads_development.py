"""Heads through training: half-rise steps of planted curves, weights of each step, runs without kept weights."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from built import ONE_LAYER, built
from safetensors.torch import save_file

from headcount.data.batches import Sentences
from headcount.errors import InputError
from headcount.heads import development as module
from headcount.heads.ablation import effects, without_each
from headcount.heads.development import CURVES, emergence, half_rise, kept_steps
from headcount.heads.evaluation_set import EvaluationSet
from headcount.heads.interface import Heads
from headcount.heads.measure import measure

STEPS = np.array([0, 10, 100, 1000])


def test_half_rise_is_where_a_curve_is_halfway():
    curves = np.array([[0.0, 0, 4, 4], [1, 1, 1, 3], [0, 4, 4, 4], [2, 1, 1, 1], [0, 1, 3, 4.0]])
    found = half_rise(STEPS.astype(float), curves)
    between = [np.sqrt(11 * 101), np.sqrt(101 * 1001), np.sqrt(11), np.nan, np.sqrt(11 * 101)]
    assert found == pytest.approx(np.array(between) - [1, 1, 1, 0, 1], nan_ok=True)


def planted(order_early, noise=0.3, pairs=60, seed=0):
    """Head 2 carries order from step 10 or only from step 1000; the margin of order is 4 from step 100."""
    random = np.random.default_rng(seed)
    right = noise * random.standard_normal((4, 3, pairs))
    right[2:] += 4
    right[:2, 0] -= 1
    right[:2, 1] -= 1
    right[1 if order_early else 3 :, 2] -= 4
    names = np.array(["cross1.1", "cross1.2"])
    labels = {"phenomenon": np.array(["order"] * pairs), "head": names, "step": STEPS}
    return {"right": right, "wrong": np.zeros(right.shape), **labels}


@pytest.mark.parametrize(("early", "first"), [(True, "effect"), (False, "margin")])
def test_emergence_orders_effect_and_margin(early, first):
    (found,) = emergence(planted(early), draws=200)
    assert (found.phenomenon, found.head, found.first) == ("order", "cross1.2", first)
    assert found.accuracy[[0, 1]].max() < 5
    assert found.accuracy[2:].tolist() == [100, 100]
    value, low, high = found.half["accuracy"]
    assert 10 < low <= value <= high < 100
    assert (found.half["effect"][2] < 100) == early


def unchanging(seed, pairs=20, steps=8, heads=24):
    """Margins that differ by pair, and by nothing but noise over the steps and without a head."""
    random = np.random.default_rng(seed)
    right = random.normal(0, 2, (1, 1, pairs)) + random.normal(0, 0.3, (steps, 1 + heads, pairs))
    right += random.normal(0, 1, (steps, 1, pairs))
    names = np.array([f"cross1.{head + 1}" for head in range(heads)])
    labels = {"phenomenon": np.array(["order"] * pairs), "head": names}
    return {"right": right, "wrong": np.zeros_like(right), **labels, "step": 30 * 2 ** np.arange(steps) - 30}


@pytest.mark.medium
def test_a_margin_that_does_not_change_seldom_has_a_half_rise():
    """A false rise has 2.5 % for each curve, but for the error of 100 runs."""
    found = [emergence(unchanging(seed), draws=200)[0] for seed in range(100)]
    for curve in CURVES:
        assert np.mean([np.isfinite(each.half[curve][0]) for each in found]) <= 0.08
    assert all(each.first == "inconclusive" for each in found)


def test_the_head_is_measured_on_pairs_that_did_not_choose_it():
    """Of 24 heads without an effect, the one that seems to matter most has none on other pairs."""
    found = [emergence(unchanging(seed), draws=2)[0].effect[-1] for seed in range(60)]
    assert abs(np.mean(found)) < 3 * np.std(found) / len(found) ** 0.5


@pytest.fixture
def analysis(tmp_path, monkeypatch):
    """Two sentences, and a run with weights of steps 5 and 20."""
    torch.manual_seed(1)
    model = built("model/nano", **ONE_LAYER, vocab_size=20).eval()
    sentences = Sentences.of([[5, 6, 7], [8, 9]])
    pair = np.array([1]), Sentences.of([[9, 8]]), [("order", "easy")], np.array([], int), Sentences.of([])
    test = EvaluationSet([0, 1], sentences, sentences, np.arange(2), *pair)
    (tmp_path / "checkpoints").mkdir()
    for step in (20, 5):
        other = copy.deepcopy(model)
        torch.nn.init.normal_(other.output.weight, std=step / 20)
        weights = {name: tensor.clone() for name, tensor in other.state_dict().items()}
        save_file(weights, tmp_path / "checkpoints" / f"step-{step}.safetensors")
    monkeypatch.setattr(module, "evaluation_set", lambda run, rows, most: test)
    settings = SimpleNamespace(step_sentences=2)
    run = SimpleNamespace(model=model, directory=tmp_path)
    return SimpleNamespace(run=run, settings=settings, test=test)


def test_effects_are_those_of_the_weights_of_each_step(analysis):
    before = copy.deepcopy(analysis.run.model.state_dict())
    found = module.development.measure(analysis, lambda done: None)
    assert found["step"].tolist() == [5, 20]
    assert found["loss"].shape == (2, 7, 2)
    assert found["right"].shape == found["wrong"].shape == (2, 7, 1)
    assert found["right"] == pytest.approx(-found["loss"][:, :, 1:])
    assert abs(found["loss"][0] - found["loss"][1]).min() > 0.01
    after = analysis.run.model.state_dict()
    assert all(after[name].equal(tensor) for name, tensor in before.items())
    module.load_weights(analysis.run.model, kept_steps(analysis.run.directory)[20], analysis.run.directory)
    heads = Heads(analysis.run.model)
    assert found["wrong"][1] == pytest.approx(effects(heads, analysis.test, without_each(heads))["wrong"], abs=1e-4)


def test_a_run_without_kept_weights_is_refused_with_the_setting_that_keeps_them(analysis):
    (analysis.run.directory / "checkpoints" / "step-5.safetensors").unlink()
    with pytest.raises(InputError, match=r"parts: training needs weights of two steps or more; .*checkpoint\.keep="):
        measure(analysis, ["training"])
