"""Recurrence over seeds: shuffled heads are matched again, random ones are not, specialists and spread are counted."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from built import BOUNDS

from headcount.errors import InputError
from headcount.heads import recurrence
from headcount.heads.recurrence import (
    assigned,
    half_effects,
    match,
    matched_effects,
    participation,
    same_pairs,
    specialist,
    spread,
)
from headcount.heads.results import Results, Study
from headcount.heads.sections.over_seeds.summary import held
from headcount.heads.statistics import effect_table
from headcount.statistics.max_t import EffectTable

LAYERS, HEADS = ("encoder1", "cross1"), 4
NAMES = np.array([f"{layer}.{head}" for layer in LAYERS for head in range(1, HEADS + 1)])
PHENOMENA = ("case", "negation", "order")


def run(seed, costs, noise=0.05, pairs=20):
    """Results of a run whose heads cost `costs` [head, phenomenon] of a margin of 4 nats."""
    random = np.random.default_rng(seed)
    phenomenon = np.array(PHENOMENA * pairs)
    harm = costs[:, [PHENOMENA.index(name) for name in phenomenon]]
    right = 4 - np.concatenate([np.zeros((1, len(phenomenon))), harm])
    right += noise * random.standard_normal(right.shape)
    return {
        "zero.reference": -1 - 0.1 * random.random(right.shape),
        "zero.lengths": np.ones(len(phenomenon), dtype=int),
        "zero.right": right,
        "zero.wrong": np.zeros(right.shape),
        "row": np.arange(len(phenomenon)),
        "phenomenon": phenomenon,
        "grade": np.array(["easy"] * len(phenomenon)),
        "head": NAMES,
    }


def permuted(seed):
    """Order and case share a head of the cross-attention, negation has one of the encoder; their numbers vary."""
    random = np.random.default_rng(seed)
    costs = np.zeros((2, HEADS, 3))
    costs[1, 0, [0, 2]] = costs[0, 0, 1] = 3
    return np.concatenate([layer[random.permutation(HEADS)] for layer in costs])


@pytest.mark.medium
def test_heads_that_were_shuffled_within_their_layers_are_matched():
    found = match("4", [run(seed, permuted(seed)) for seed in range(5)])
    assert found.similarity > 0.95 > found.null
    assert found.p < 0.01
    layer = found.heads.reshape(5, 2, HEADS)
    assert (np.sort(layer) == np.arange(8).reshape(2, HEADS)).all()
    carried = [costs.argmax(axis=0) for costs in map(permuted, range(5))]
    assert [each[2] for each in carried] in found.heads.T.tolist()


@pytest.mark.medium
def test_effects_of_matched_heads_are_averaged_over_runs():
    runs = [run(seed, permuted(seed) * (1 + (seed == 0) / 3)) for seed in range(5)]
    found = matched_effects(match("4", runs), runs, [effect_table(each) for each in runs])
    order = found.columns.index("order")
    head = int(found.mean[:, order].argmin())
    assert found.heads[head] in {"cross1.a", "cross1.b", "cross1.c", "cross1.d"}
    # 4 nats lost in one run, 3 in each of four.
    assert found.mean[head, order] == pytest.approx(-3.2, abs=0.05)
    assert found.low[head, order] == pytest.approx(-3.2 - 2.776 * 0.2, abs=0.05)
    assert (found.differs[head, order], found.differs[:, order].sum()) == (5, 5)
    assert abs(np.delete(found.mean[:, order], head)).max() < 0.05


@pytest.mark.medium
def test_random_profiles_do_not_match_better_than_shuffled_ones():
    random = np.random.default_rng(0)
    p = []
    for seed in range(20):
        p.append(match("4", [run(seed, random.random((8, 3))) for seed in range(3)], seed).p)
    assert sum(each < 0.05 for each in p) <= 4
    assert 0.25 < np.mean(p) < 0.75


def test_heads_are_matched_in_their_places_only():
    first = np.eye(4)
    order, similarity = assigned(first, first[[1, 0, 3, 2]], np.array([0, 0, 1, 1]))
    assert (order.tolist(), similarity) == ([1, 0, 3, 2], 1)
    assert assigned(first, first[[2, 3, 0, 1]], np.array([0, 0, 1, 1]))[1] == 0
    assert assigned(first, first[[2, 3, 0, 1]], np.zeros(4))[1] == 1


def test_specialists_are_counted_by_layer():
    runs = [run(seed, permuted(seed)) for seed in range(4)]
    runs.append(run(4, np.full((8, 3), 0.5)))
    tables = [effect_table(each) for each in runs]
    order, negation = (specialist(tables, name) for name in ("order", "negation"))
    assert (order.count.found, order.count.runs) == (4, 5)
    assert (order.layers, negation.layers) == ({"cross1": 4}, {"encoder1": 4})
    # Clopper and Pearson for 4 of 5.
    assert (order.count.low, order.count.high) == pytest.approx((0.2836, 0.9949), abs=1e-3)


@pytest.mark.medium
def test_the_match_does_not_make_the_picture(monkeypatch):
    """Without any effect, matched heads are no more alike than other ones, on the pairs that they are drawn from."""
    monkeypatch.setattr(recurrence, "PERMUTATIONS", 1)
    alike = []
    for seed in range(40):
        runs = [run(5 * seed + n, np.zeros((8, 3)), noise=1.0) for n in range(5)]
        found = matched_effects(match("4", runs), runs, [nothing(each) for each in runs])
        # The variance of a mean over 5 runs of means of 10 pairs, of the head and of the whole model.
        alike.append((found.mean[:, 1:] ** 2).mean() / (2 / 10 / 5))
    assert np.mean(alike) == pytest.approx(1, abs=0.15)


def nothing(arrays) -> EffectTable:
    """A table in which no effect is found."""
    table = effect_table(run(0, np.zeros((8, 3))))
    return replace(table, verdict=np.full(table.verdict.shape, "undecided"))


@pytest.mark.medium
def test_half_of_the_pairs_of_each_phenomenon_matches_and_the_other_half_is_drawn():
    arrays = run(0, np.zeros((8, 3)), noise=0)
    both = [half_effects(arrays, half)[0].copy() for half in (0, 1)]
    assert np.abs(both).max() < 0.2  # the loss alone
    halves = np.zeros((60, 2))
    for pair in range(60):
        changed = {**arrays, "zero.right": arrays["zero.right"].copy()}
        changed["zero.right"][1, pair] -= 1
        halves[pair] = [half_effects(changed, half)[0][0, 1:].sum() for half in (0, 1)]
    assert halves.sum(axis=1) == pytest.approx(-0.1)
    assert halves.max(axis=1) == pytest.approx(0)
    for name in PHENOMENA:
        assert (halves[arrays["phenomenon"] == name] < -0.05).sum(axis=0).tolist() == [10, 10]


def test_spread_is_the_number_of_heads_with_equal_effects():
    assert participation(np.array([2.0, 2, 0, 0])[:, None] * np.ones(5)) == pytest.approx(2)
    assert np.isnan([participation(np.zeros((3, 5))), participation(-np.ones((3, 5)))]).all()
    few = [run(seed, permuted(seed), noise=0.001) for seed in range(3)]
    many = [run(seed, np.full((8, 3), 0.5), noise=0.001) for seed in range(3)]
    one, all_ = spread(few, "order"), spread(many, "order")
    assert one.heads.mean == pytest.approx(1, abs=0.01)
    assert all_.heads.mean == pytest.approx(8, abs=0.01)
    assert all_.share.mean == pytest.approx(1, abs=0.01)
    none = spread([run(0, np.full((8, 3), -1.0))], "order")
    assert (none.heads.runs, none.layers["cross1"].runs) == (0, 0)
    assert {layer: share.mean for layer, share in one.layers.items()} == pytest.approx(
        {"encoder1": 0, "cross1": 1}, abs=0.01
    )
    assert all_.layers["cross1"].mean == pytest.approx(0.5, abs=0.01)


def test_noise_does_not_raise_the_effective_number():
    """Two heads of eight cost 3 nats each, and the six others nothing but noise."""
    random, costs = np.random.default_rng(0), np.zeros((8, 1))
    costs[[1, 5]] = 3
    found = [participation(costs + random.normal(0, 3, (8, 20))) for _ in range(300)]
    assert np.nanmedian(found) == pytest.approx(2, abs=0.15)


def test_runs_measured_on_different_designs_are_refused():
    first, other = run(0, permuted(0)), run(1, permuted(1))
    other["phenomenon"] = other["phenomenon"][::-1]
    with pytest.raises(InputError, match="test sets of different design \\(phenomenon of their pairs differs\\)"):
        same_pairs([first, other])


@pytest.mark.parametrize("own", [True, False])
def test_a_section_says_where_runs_have_sentences_of_their_own(own):
    runs = [{**run(seed, permuted(seed)), "sentences": np.array(str(seed * own))} for seed in (0, 1)]
    each = [Results(str(n), Path("a"), ("en", "de"), {"ablation": arrays}, BOUNDS) for n, arrays in enumerate(runs)]
    study = Study(Path("a"), "heads", {"4": each})
    assert held(study, study.rows) == ("Not all runs were measured on the same sentences." if own else "")
