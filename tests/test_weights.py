"""The choice of the weights that are scored: average or last."""

import math

import pytest
import torch
from toy import one_number

from headcount.run.weights import choose_weights


def chosen(last: float, average: float | None, measure=lambda weight: {"loss": abs(weight - 3)}):
    """Which of the two weights is kept, what the model has afterwards, and the figures."""
    model = one_number(last)
    averaged = None if average is None else {"weight": torch.full((1, 1), average)}
    weights, figures = choose_weights(model, averaged, lambda: measure(model.weight.item()))
    assert torch.equal(model.weight, weights["weight"])
    return weights["weight"].item(), figures


@pytest.mark.parametrize(
    ("average", "scored", "of_average"),
    [
        (1.0, "last", 2.0),  # it lags behind
        (3.25, "average", 0.25),
        (None, "last", None),
        (3.5, "last", None),  # it is the last weights
    ],
)
def test_the_lower_loss_is_kept(average, scored, of_average):
    kept, figures = chosen(last=3.5, average=average)
    assert kept == (average if scored == "average" else 3.5)
    assert figures == {"scored": scored, "valid_loss": {"average": of_average, "last": 0.5}}


def test_an_average_without_a_number_is_not_kept():
    assert chosen(last=3.5, average=math.nan)[0] == 3.5
    assert chosen(last=math.nan, average=3.5)[0] == 3.5


@pytest.mark.parametrize(
    ("bleu", "kept"), [({1.0: 30.0, 3.5: 20.0}, 1.0), ({1.0: 20.0, 3.5: 20.0}, 3.5), ({1.0: 20.0, 3.5: 30.0}, 3.5)]
)
def test_where_bleu_decides_the_loss_decides_a_tie(bleu, kept):
    found, figures = chosen(3.5, 1.0, lambda weight: {"loss": abs(weight - 3), "bleu": bleu[weight]})
    assert found == kept
    assert figures["valid_loss"] == {"average": 2.0, "last": 0.5}
    assert figures["valid_bleu"] == {"average": bleu[1.0], "last": bleu[3.5]}
