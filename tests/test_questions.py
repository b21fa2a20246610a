"""The questions on heads: each analysis finds what was planted, and raises no alarm where there is nothing."""

import common
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


def test_takers_are_counted_for_the_heads_that_add_something_alone():
    """A head that takes logits away does not count, nor do heads before the one that is off."""
    rows = [
        {"run": run, "off": off, "receiver": receiver, "half": half, "gain": gain, "adds": adds}
        for run in (1, 2, 3)
        for half in (0, 1)
        for off, own, gained in (("cross1.1", 4.0, 1.0 + 0.1 * run), ("cross1.2", -50.0, -5.0))
        for receiver, gain, adds in ((off, -own, own), ("decoder1.1", 7.0, 1.0), ("cross2.1", gained, 1.0))
    ]
    found = repair.takers(pd.DataFrame(rows))
    assert {name: each.value for name, each in found.items()} == pytest.approx({"cross2": 0.3})


def test_lost_sensitivity_is_information_where_it_is_above_half_of_the_lost_accuracy():
    accuracy = pd.Series([20.0, 22, 21, 19, 20])
    verdicts = [repair.information(accuracy, accuracy * share)["verdict"] for share in (1.0, 0.0)]
    assert verdicts == ["information", "bias"]
    assert repair.information(accuracy - 20, accuracy)["verdict"] == "no loss"


@pytest.mark.parametrize("draw", range(3))
def test_a_sufficient_set_has_no_head_that_can_go(draw):
    """One circuit of three heads: in whatever order G- puts them, no other set is found, so none is apart."""
    circuit = np.zeros(24, dtype=bool)
    circuit[[3, 8, 20]] = True

    def accuracy(on):
        return np.where(on[:, circuit].all(axis=1), 95.0, 60.0)

    found = gating.sufficient(accuracy, np.random.default_rng(draw).random(24))
    assert (found == circuit).all()


def test_two_sets_are_apart_if_the_smaller_one_shares_less_than_half():
    assert not gating.apart([{1, 2, 3, 4, 5}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}])
    assert gating.apart([{1, 2, 3}, {3, 4, 5, 6}])


def gates_and_sets(runs: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Head 1 is needed by each phenomenon and head 8 harmful; two draws find sets that share no head."""
    gates, sets = [], []
    for run, noise in zip(range(runs), np.random.default_rng(0).normal(0, 0.01, runs), strict=True):
        for name in ("loss", "order", "negation"):
            base = {"run": str(run), "task": name}
            score = {"loss": 2.0} if name == "loss" else {"accuracy": 95.0, "margin": 5.0}
            sets.append(base | {"set": "all"} | score)
            for number, head in enumerate(HEADS):
                up, down = float(number != 7), float(number == 0)
                draws = [{"draw": draw, "up": up, "down": down - 0.01 * number} for draw in (0, 1)]
                gates += [base | {"head": head, "signed": 1.0 - number} | each for each in draws]
                worse = {"loss": 2.0 + 0.1 / (1 + number)} if name == "loss" else score | {"margin": 4.0 + number / 8}
                sets.append(base | {"set": f"without {head}"} | worse)
            for draw, on in enumerate(HEADS[:2]):
                better = score if name == "loss" else score | {"margin": 6.0 + noise}
                sets.append(base | {"set": "without interfering", "draw": draw, "on": ""} | better)
                sets += [base | {"set": "sufficient", "draw": draw, "on": on} | score] if name != "loss" else []
    return pd.DataFrame(gates), pd.DataFrame(sets)


def test_the_page_of_gates_tells_needed_harmful_and_interchangeable_heads(monkeypatch):
    tables = dict(zip(("gates", "sets"), gates_and_sets(5), strict=True))
    found = gating.figures(**tables)
    row = next(each for each in found["rows"] if each["task"] == "order")
    assert (row["facilitating"], row["interfering"], row["apart"], row["size"]) == (1, 1, "5 of 5", "1 to 1")
    assert row["interference"].startswith("1.0")
    assert row["rank"].startswith("1.00")
    assert found["costly"] == "8.0"
    assert found["verdict"] == "not shown"  # two phenomena of eight
    monkeypatch.setattr(gating, "kept", lambda question, name: tables[name])
    assert "| order | 1.0 | 6.0 | 1.0 | 5 of 5 |" in gating.page()[0]


def test_the_page_of_stability_has_each_contrast(monkeypatch):
    random = np.random.default_rng(0)
    names = ("default", "decay_0.1", "decay_0.01", "tatoeba", "tatoeba_0.1")
    effects = pd.concat([planted(3.0, 4, random).assign(condition=name) for name in names])
    tables = {"effects": effects, "alarms": pd.DataFrame([{"any sublayer": 5.0, "two groups": 1.0}])}
    monkeypatch.setattr(stability, "all_effects", lambda: effects)
    monkeypatch.setattr(stability, "kept", lambda question, name: tables[name])
    text = stability.page()[0]
    rows = [line for line in text.splitlines() if line.startswith(("| Tatoeba", "| weight decay", "| cross-attention"))]
    assert len(rows) == 5


def test_a_gate_that_rises_with_the_harm_is_told_and_bleu_is_compared_within_seeds(monkeypatch):
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
    for within in (True, False):
        assert found["ranks"]["loss"]["head", within].low > 0.5 > found["ranks"]["loss"]["element", within].high
    values = [each.value for each in found["tests"].values()]
    assert values == pytest.approx([1, 0, 0, 0, 1, 0.1], abs=0.1)
    assert found["tests"]["BLEU, built-in corpus: `head` less none"].verdict == "above 0"
    tables = {"bleu": scores, "attended": attended, "gates": gates}
    monkeypatch.setattr(head_gate, "captions", lambda: scores[:0])
    monkeypatch.setattr(head_gate, "kept", lambda question, name: tables[name])
    assert "| none_0.04 |" in head_gate.page()[0]


def test_bleu_of_kept_captions_is_that_of_their_report():
    own = pd.read_csv(common.RESULTS / "equal_heads_multi30k" / "results.csv").query("row == 4 and seed <= 5")
    scores = head_gate.captions().sort_values("run")["bleu"]
    assert len(scores) == len(own) == 5
    # The report has both splits apart; together they are between the two.
    low, high = (own[["valid.bleu", "test.bleu"]].agg(name, axis=1).to_numpy() for name in ("min", "max"))
    assert ((low - 0.05 < scores.to_numpy()) & (scores.to_numpy() < high + 0.05)).all()


def test_what_is_given_back_is_the_accuracy_learned_without_the_head(monkeypatch):
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
    monkeypatch.setattr(learning, "kept", lambda question: pd.DataFrame(rows))
    assert "the head is needed to learn**" in learning.page()[0]
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
        def objective(self, heads, gates, number, margin=False):
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
