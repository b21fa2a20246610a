"""Sensitivity and criterion: by hand, and apart from each other."""

import numpy as np
import pytest

from headcount.heads.signal_detection import sensitivity


def arrays(right, twin_right, phenomenon):
    found = {"zero.right": right, "zero.twin_right": twin_right}
    zeros = {"zero.wrong": np.zeros((len(right), 4)), "zero.twin_wrong": np.zeros((len(right), 4))}
    names = {"head": np.array(["cross1.1", "cross1.2"][: len(right) - 1]), "phenomenon": np.array(phenomenon)}
    return {name: np.array(values, dtype=float) for name, values in (found | zeros).items()} | names


def test_sensitivity_and_criterion_worked_by_hand():
    # Of four pairs the model is right with all four sentences and with three of their twins; without the first head it
    # cannot tell them apart, and without the second it prefers the first translation, but still tells them apart.
    right = [[1, 2, 3, 4], [1, 1, -1, -1], [5, 5, 5, 5]]
    twin_right = [[-1, -1, -1, 1], [-1, 1, -1, 1], [-1, 1, 1, 1]]
    found = sensitivity(arrays(right, twin_right, ["case"] * 4))
    assert found.pairs.values.tolist() == [4]
    # Rates with half a pair more: 4.5 and 1.5 of 5, 2.5 and 2.5, 4.5 and 3.5; z(0.9) = 1.2816, z(0.3) = -0.5244.
    assert found.d_prime.sel(phenomenon="case").values == pytest.approx([1.8060, 0, 0.7572], abs=1e-4)
    assert found.criterion.sel(phenomenon="case").values == pytest.approx([-0.3786, 0, -0.9030], abs=1e-4)
    assert found.setting.values.tolist() == ["whole", "cross1.1", "cross1.2"]


def test_phenomena_are_apart_and_a_lean_towards_one_answer_is_no_loss_of_the_cue():
    shift = np.array([[0.0], [1.5]])
    right, twin_right = shift + np.array([1, 3, 1, 3]), shift + np.array([-1, -3, -1, -1])
    found = sensitivity(arrays(right, twin_right, ["case", "case", "order", "order"]))
    assert found.phenomenon.values.tolist() == ["case", "order"]
    assert found.criterion.sel(setting="whole").values == pytest.approx(0)
    assert (found.criterion.sel(setting="cross1.1") < 0).all()
    some = arrays(right, [[*row[:3], np.nan] for row in twin_right], ["case", "case", "case", "order"])
    assert sensitivity(some).phenomenon.values.tolist() == ["case"]  # a pair without a twin has none
    assert found.d_prime.sel(setting="cross1.1", phenomenon="case") > found.d_prime.sel(
        setting="cross1.1", phenomenon="order"
    )
