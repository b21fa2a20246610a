"""Schedules against numbers computed by hand."""

import pytest
from built import built

from headcount.training.schedule import Cosine, Noam


def test_inverse_square_root_by_hand():
    factor = built("schedule/inverse_sqrt", warmup_steps=4)
    assert [factor(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert factor(15) == 0.5
    assert factor(399) == 0.1


def test_noam_is_the_inverse_square_root_with_the_papers_constant():
    noam, root = Noam(d_model=64, warmup_steps=4), built("schedule/inverse_sqrt", warmup_steps=4)
    for step in (0, 3, 15, 399):
        assert noam(step) == pytest.approx(root(step) * 64**-0.5 * 4**-0.5)


def test_cosine_by_hand():
    factor = Cosine(steps=12, warmup_steps=4, final=0.2)
    assert [factor(step) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert factor(8) == pytest.approx(0.6)  # half the way down
    assert factor(12) == pytest.approx(0.2)
    assert factor(50) == pytest.approx(0.2)  # whoever goes on beyond


def test_every_step_of_a_cosine_that_ends_at_zero_has_a_rate_above_zero():
    factor = Cosine(steps=12, warmup_steps=4, final=0)
    assert [factor(step) > 0 for step in range(13)] == [True] * 12 + [False]


def test_constant_by_hand():
    factor = built("schedule/constant", warmup_steps=2)
    assert [factor(step) for step in (0, 1, 2, 1000)] == [0.5, 1, 1, 1]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: built("schedule/inverse_sqrt", warmup_steps=0), r"schedule\.warmup_steps=0"),
        (lambda: Noam(d_model=64, warmup_steps=0), r"schedule\.warmup_steps=0"),
        (lambda: built("schedule/constant", warmup_steps=0), r"schedule\.warmup_steps=0"),
        (lambda: Cosine(steps=10, warmup_steps=0, final=0), r"schedule\.warmup_steps=0"),
        (lambda: Cosine(steps=10, warmup_steps=10, final=0), r"schedule\.steps=10"),
        (lambda: Cosine(steps=10, warmup_steps=5, final=1.5), r"schedule\.final=1\.5"),
    ],
)
def test_settings_out_of_range_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()
