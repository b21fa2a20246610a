"""Interactions and Shapley values: planted redundancy is found, values are the exact ones and add up."""

from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pytest
from built import BOUNDS, ONE_LAYER, built

from headcount.heads.interactions import interaction_table, pairs_of, redundancies
from headcount.heads.interface import Heads
from headcount.heads.shapley import marginals, orders, values


@pytest.fixture(scope="module")
def heads():
    return Heads(built("model/nano", **{**ONE_LAYER, "decoder_layers": 2}, vocab_size=20).eval())


def test_pairs_are_each_once_and_if_few_those_of_a_layer(heads):
    assert list(map(tuple, pairs_of(heads, 300, 0).tolist())) == list(combinations(range(10), 2))
    assert pairs_of(heads, 5, 0).tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert len(pairs_of(heads, 7, 0)) == 7


def planted(sentences=80):
    """Heads 1 and 2 replace each other for order: either alone costs nothing, both cost 3 nats; head 3 costs 1 nat."""
    random = np.random.default_rng(0)
    pair = np.array([[0, 1], [0, 2], [1, 2]])
    off = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 1]])
    loss = 5 + off[:, 2:] + 0.1 * random.standard_normal((7, sentences))
    phenomenon = np.array(["case", "order"] * (sentences // 2))
    right = -3.0 * (off[:, :1] & off[:, 1:2]) * (phenomenon == "order") + 0.1 * random.standard_normal((7, sentences))
    return {
        "zero.reference": -loss,
        "zero.lengths": np.ones(sentences, dtype=int),
        "zero.right": right,
        "zero.wrong": np.zeros((7, sentences)),
        "row": np.arange(sentences),
        "phenomenon": phenomenon,
        "pair": pair,
        "head": np.array(["cross1.1", "cross1.2", "cross2.1"]),
    }


def test_planted_redundancy_is_found_and_nothing_else():
    arrays = planted()
    (found,) = redundancies(arrays, BOUNDS)
    assert (found.head, found.column) == ("cross1.1 + cross1.2", "order")
    assert found.estimate == pytest.approx(3, abs=0.1)
    assert found.low < 3 < found.high
    table = interaction_table(arrays)
    assert np.argwhere(table.verdict == "differs").tolist() == [[0, table.columns.index("order")]]


def test_heads_that_are_not_free_to_cut_alone_are_not_redundant():
    arrays = planted()
    # Head 1 alone costs 3 nats in a few sentences: the mean is not significant, and not below the bound.
    rare = (arrays["phenomenon"] == "order") & (np.arange(80) % 16 == 1)
    arrays["zero.right"][1, rare] -= 3
    table = interaction_table(arrays)
    assert table.verdict[0, table.columns.index("order")] == "differs"
    assert redundancies(arrays, BOUNDS) == []
    assert redundancies(arrays, replace(BOUNDS, margin=5)) == []  # both together are below this bound, too
    assert len(redundancies(planted(), replace(BOUNDS, margin=1))) == 1


def game(on):
    """Loss of a game of four heads: the third replaces the second, the fourth does nothing."""
    on = on.astype(float)
    return 9 - 4 * on[:, 0] - 3 * np.maximum(on[:, 1], on[:, 2]) - on[:, 0] * on[:, 1]


def exact(losses, heads):
    """Shapley values by all orders."""
    found = np.zeros(heads)
    for order in permutations(range(heads)):
        on = np.zeros((heads + 1, heads), dtype=bool)
        for place, head in enumerate(order):
            on[place + 1 :, head] = True
        found[list(order)] -= np.diff(losses(on))
    return found / len(list(permutations(range(heads))))


def test_shapley_values_of_all_orders_are_exact():
    every = np.array(list(permutations(range(4))))
    marginal, empty, full = marginals(game, every, tolerance=0)
    assert marginal.mean(axis=0) == pytest.approx(exact(game, 4))
    assert (empty, full) == (9, 1)


def test_an_order_is_truncated_where_nothing_is_left_to_gain():
    calls = []

    def losses(on):
        calls.append(len(on))
        return 1.0 - on[:, :3].all(axis=1)

    marginal, _, _ = marginals(losses, np.array([np.arange(20), np.arange(20)[::-1]]))
    assert marginal.tolist() == [[0, 0, 1, *[0] * 17], [1, *[0] * 19]]
    assert calls == [2, 12, 6, 6, 2]


def test_intervals_of_sampled_values_hold_the_exact_ones():
    truth, hits = exact(game, 4), []
    for seed in range(100):
        marginal, _, _ = marginals(game, orders(4, 12, seed), tolerance=0)
        found = values({"marginal": marginal, "head": np.array(["a", "b", "c", "d"])})
        hits.append([each.low - 1e-9 <= true <= each.high + 1e-9 for each, true in zip(found, truth, strict=True)])
    assert np.mean(hits) > 0.85
