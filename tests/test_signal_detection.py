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
    names, found = sensitivity(arrays(right, twin_right, ["case"] * 4))
    assert names == ["case"]
    # Rates with half a pair more: 4.5 and 1.5 of 5, 2.5 and 2.5, 4.5 and 3.5; z(0.9) = 1.2816, z(0.3) = -0.5244.
    assert found["d_prime"][:, 0] == pytest.approx([1.8060, 0, 0.7572], abs=1e-4)
    assert found["criterion"][:, 0] == pytest.approx([-0.3786, 0, -0.9030], abs=1e-4)
    twin_right = [[*row[:3], np.nan] for row in twin_right]
    assert sensitivity(arrays(right, twin_right, ["case", "case", "case", "order"]))[0] == ["case"]  # without a twin
