"""Recurrence over seeds: shuffled heads are matched again, random ones are not, specialists and spread are counted."""

import numpy as np
import pytest

from headcount.errors import InputError
from headcount.heads.recurrence import assigned, match, matched_effects, participation, same_pairs, specialist, spread
from headcount.heads.statistics import effect_table

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
    tables = [effect_table(run(seed, permuted(seed))) for seed in range(5)]
    found = match("4", tables, "layer")
    assert found.similarity > 0.95 > found.null
    assert found.p < 0.01
    layer = found.heads.reshape(5, 2, HEADS)
    assert (np.sort(layer) == np.arange(8).reshape(2, HEADS)).all()
    carried = [costs.argmax(axis=0) for costs in map(permuted, range(5))]
    of_order = found.profile[:, 2].argmax()
    assert found.heads[:, of_order].tolist() == [each[2] for each in carried]
    assert found.profile[of_order] == pytest.approx([0.75, 0, 0.75], abs=0.02)


@pytest.mark.medium
def test_effects_of_matched_heads_are_averaged_over_runs():
    tables = [effect_table(run(seed, permuted(seed) * (1 + (seed == 0) / 3))) for seed in range(5)]
    found = matched_effects(match("4", tables, "layer"), tables)
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
        tables = [effect_table(run(seed, random.random((8, 3)))) for seed in range(3)]
        p.append(match("4", tables, "layer", seed).p)
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
    order, negation = (specialist("4", tables, name).placed for name in ("order", "negation"))
    assert (order.count.found, order.count.runs) == (4, 5)
    assert (order.layers, negation.layers) == ({"cross1": 4}, {"encoder1": 4})
    # Clopper and Pearson for 4 of 5.
    assert (order.count.low, order.count.high) == pytest.approx((0.2836, 0.9949), abs=1e-3)


def test_spread_is_the_number_of_heads_with_equal_effects():
    assert participation(np.array([2.0, 2, 0, -1])) == 2
    assert participation(np.zeros(3)) == 0
    few = [effect_table(run(seed, permuted(seed), noise=0.001)) for seed in range(3)]
    many = [effect_table(run(seed, np.full((8, 3), 0.5), noise=0.001)) for seed in range(3)]
    one, all_ = spread("few", few, "order"), spread("many", many, "order")
    assert one.heads.mean == pytest.approx(1, abs=0.01)
    assert all_.heads.mean == pytest.approx(8, abs=0.01)
    assert all_.heads.low < 8 == all_.heads.high
    assert all_.share.mean == pytest.approx(1, abs=0.01)
    assert (one.differ.mean, all_.differ.mean) == (1, 8)
    assert (one.sure.mean, all_.sure.mean) == pytest.approx((1, 8), abs=0.01)
    none = spread("none", [effect_table(run(0, np.full((8, 3), -1.0)))], "order")
    assert (none.heads.runs, none.sure.runs, none.differ.mean, none.layers["cross1"].runs) == (0, 0, 0, 0)
    assert {layer: share.mean for layer, share in one.layers.items()} == pytest.approx(
        {"encoder1": 0, "cross1": 1}, abs=0.01
    )
    assert all_.layers["cross1"].mean == pytest.approx(0.5, abs=0.01)


def test_runs_measured_on_different_pairs_are_refused():
    first, other = run(0, permuted(0)), run(1, permuted(1))
    other["phenomenon"] = other["phenomenon"][::-1]
    with pytest.raises(InputError, match="measured on different sentences \\(phenomenon differs\\)"):
        same_pairs([first, other])
