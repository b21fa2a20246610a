"""The questions on heads: each analysis finds what was planted, and raises no alarm where there is nothing."""

import gating
import head_gate
import learning
import numpy as np
import pandas as pd
import pytest
import repair
import stability
import torch
from built import ONE_LAYER, built
from common import jackknife, over_runs
from conftest import completed

import headcount

HEADS = [f"cross{layer}.{head}" for layer in (1, 2) for head in (1, 2, 3, 4)]


def planted(shared: float, runs: int, random: np.random.Generator) -> pd.DataFrame:
    """Effects of heads in whose first sublayer each head has a profile that all runs share, in another order."""
    profile, rows = random.normal(size=(4, 6)), []
    for run in range(runs):
        own = shared * profile[random.permutation(4)] + random.normal(size=(4, 6))
        effects = np.concatenate([own, random.normal(size=(4, 6))])
        for half in (0, 1):
            noisy = effects + 0.1 * random.normal(size=effects.shape)
            rows += [
                {"run": run, "head": head, "phenomenon": f"p{number}", "half": half, "harm": noisy[place, number]}
                for place, head in enumerate(HEADS)
                for number in range(6)
            ]
    return pd.DataFrame(rows)


@pytest.mark.medium
def test_heads_that_recur_are_told_from_heads_of_chance():
    found = stability.excesses(planted(5.0, 8, np.random.default_rng(0)))
    assert stability.contrast(found, {"cross1": 1}, 2).low > 0.2
    other = stability.contrast(found, {"cross2": 1}, 2)
    assert other.low < 0 < other.high
    assert stability.contrast(found, {"cross1": 1, "cross2": -1}, 1).verdict == "above 0"


def test_equal_runs_have_the_similarity_one_and_dealt_effects_keep_their_size():
    values = np.random.default_rng(1).normal(size=(2, 4, 6))
    values[1] = values[0]
    assert stability.similarity(values, values[:, ::-1]) == pytest.approx(1)
    copies = stability.dealt(values, np.random.default_rng(2), 5)
    assert np.sort(copies, axis=2) == pytest.approx(np.sort(np.broadcast_to(values, copies.shape), axis=2))
    assert not np.allclose(copies[0], values)


def test_the_jackknife_of_a_mean_is_its_t_interval():
    values = np.random.default_rng(3).normal(1, 1, 7)
    without = np.array([np.delete(values, place).mean() for place in range(7)])
    assert jackknife(without, values.mean()) == pytest.approx(over_runs(values))


def test_repair_is_the_direct_harm_that_the_total_lacks():
    rows = [
        {"run": run, "head": head, "phenomenon": name, "half": half, "direct": direct, "total": total}
        for run in (1, 2, 3)
        for head, direct, total in (("cross1.1", 4.0, 1.0 + 0.1 * run), ("cross1.2", -1.0, 9.0))
        for name in ("negation", "loss")
        for half in (0, 1)
    ]
    found = repair.repaired(pd.DataFrame(rows))
    assert found.loc[2].to_dict() == pytest.approx({"negation": 0.7, "loss": 0.7, repair.ALL: 0.7})


def test_a_gate_that_rises_with_the_harm_is_told_and_bleu_is_compared_within_seeds():
    random = np.random.default_rng(0)
    rows = [
        {
            "condition": gate,
            "run": run,
            "head": head,
            "task": "loss",
            "gate": harm if gate == "head" else 0.5,
            "harm": harm,
        }
        for gate in head_gate.GATED
        for run in range(5)
        for head, harm in zip(HEADS, random.random(8), strict=True)
    ]
    gates = pd.DataFrame(rows).assign(gate=lambda each: each["gate"] + 0.01 * random.random(len(each)))
    names = [prefix + name for prefix in ("", "multi30k_") for name in ("none", *head_gate.GATED)]
    apart = {"head": 1.0, "none_0.04": -3.0, "head_0.04": -1.0}
    scores = pd.DataFrame(
        [
            {"condition": name, "run": run, "bleu": 90 + 5 * run + apart.get(name, 0.0) + 0.1 * random.random()}
            for name in [*names, "none_0.04", "head_0.04"]
            for run in range(3 if "0.04" in name else 5)
        ]
    )
    attended = pd.DataFrame(
        [
            {"condition": name, "run": run, "head": head, "rest": 0.3 - 0.1 * (name == "head"), "punctuation": run / 10}
            for name in ("none", "head")
            for run in range(5)
            for head in HEADS
        ]
    )
    found = head_gate.figures(scores, attended, gates)
    assert found["ranks"]["loss"]["head"].low > 0.5 > found["ranks"]["loss"]["element"].high
    values = [each.value for each in found["tests"].values()]
    assert values == pytest.approx([1, 0, 0, 0, 1, 0.1], abs=0.1)
    assert found["tests"]["BLEU, built-in corpus: `head` less none"].verdict == "above 0"


def test_what_is_given_back_is_the_accuracy_learned_without_the_head():
    rows = []
    for run, place in zip(range(5), np.random.default_rng(0).normal(0, 0.5, 5), strict=True):
        for held, after, whole in (("", -1, 98), *(("cross1.1", step, 60 + step / 30) for step in learning.STEPS)):
            margins = {"": 5.0, "cross1.1": 1.0 if not held else 5.0, "cross2.2": 4.0 if not held else 2.0}
            rows += [
                {"run": run, "held": held, "after": after, "off": off, "margin": margin, "bleu": 94 - 2 * (held != "")}
                | {"accuracy": whole + place - (40 if off == "cross1.1" and not held else 0), "chosen": "cross1.1"}
                for off, margin in margins.items()
            ]
        control = {
            "run": run,
            "held": "cross1.2",
            "after": 0,
            "off": "",
            "margin": 5.0,
            "bleu": 93,
            "chosen": "cross1.1",
        }
        rows.append(control | {"accuracy": 90 + 2 * place})
    found = learning.figures(pd.DataFrame(rows))
    values = [each.value for each in found["tests"].values()]
    assert values == pytest.approx([2, 27, 38, -30], abs=0.6)
    assert found["instead"][0] == (0, "cross1.1", "cross2.2")
    assert found["cost"][0].value == pytest.approx(2)
    assert found["verdict"] == "needed to learn"
    assert learning.verdict(over_runs([3, 4, 3, 4])) == "not needed to learn"


@pytest.fixture(scope="module")
def run(home):
    return headcount.open_run(home / "runs" / "first")


def test_the_direct_effect_of_the_last_head_is_its_whole_effect(run):
    """Nothing is behind the cross-attention of a single layer, so freezing the others changes nothing."""
    rows = run.data().one_way["test"].select(range(6))
    test = repair.evaluation_set(run, rows)
    number = run.heads.number("cross1.1")
    frozen = repair.direct(run.heads, test.source, test.target, [number, run.heads.number("decoder1.1")])
    free = -run.loss(list(rows["source"]), list(rows["target"]), [[], ["cross1.1"], ["decoder1.1"]]).to_numpy()
    assert frozen[:2] == pytest.approx(free[:2], rel=1e-4)
    assert frozen[2] != pytest.approx(free[2], rel=1e-4)


def test_gates_close_the_head_that_does_harm_and_keep_the_one_that_is_needed():
    model = built("model/nano", vocab_size=8, **ONE_LAYER)
    heads = gating.Heads(model)
    needed, harmful = 0, 1

    class Planted(gating.Task):
        def objective(self, heads, gates, number):
            return 0.1 * (1 - gates[needed]) + 0.1 * gates[harmful]

    up, down = gating.gates_of(heads, Planted([None], []), draw=0)
    assert down[needed] > 0.9
    assert up[harmful] < 0.1
    assert (up[2:] > 0.9).all()
    assert (down[2:] < 0.1).all()


@pytest.mark.medium
def test_a_head_held_at_zero_stays_off_in_the_saved_weights(tiny, tmp_path):
    words = [
        "averaging.kind=held",
        "averaging.share=0.25",
        "+averaging.heads=[encoder1.2,decoder1.2,cross1.2]",
        "+averaging.after=2",
        "steps=6",
    ]
    completed("train", *tiny, "extensions=[held]", *words, "hydra.run.dir=run", cwd=tmp_path)
    opened = headcount.open_run(tmp_path / "run")
    for layer in opened.heads.layers.values():
        weight = layer.output.weight
        size = weight.shape[1] // 2
        assert not weight[:, size:].any()
        assert weight[:, :size].all()
        assert torch.isfinite(weight).all()
