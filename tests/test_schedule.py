"""Schedules against numbers computed by hand."""

from functools import partial

import pytest
from built import built

from headcount.training.schedule import Cosine, Linear, Noam, Trapezoid


@pytest.mark.medium
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


def test_a_line_by_hand():
    factor = Linear(steps=12, warmup_steps=4, final=0.2)
    assert [factor(step) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert [factor(step) for step in (6, 8, 12, 50)] == pytest.approx([0.8, 0.6, 0.2, 0.2])


def test_a_trapezoid_by_hand():
    factor = Trapezoid(steps=20, warmup_steps=4, decay=0.4, final=0)
    assert [factor(step) for step in range(13)] == [0.25, 0.5, 0.75, *[1.0] * 10]
    assert [factor(step) for step in range(13, 21)] == pytest.approx([7 / 8, 6 / 8, 5 / 8, 0.5, 3 / 8, 2 / 8, 1 / 8, 0])
    assert factor(50) == 0
    assert Trapezoid(steps=20, warmup_steps=4, decay=0.4, final=0.5)(16) == pytest.approx(0.75)


ENDING = {"cosine": Cosine, "line": Linear, "trapezoid": partial(Trapezoid, decay=0.4)}


@pytest.mark.parametrize("schedule", ENDING.values(), ids=ENDING)
def test_every_step_of_a_schedule_that_ends_at_zero_has_a_rate_above_zero(schedule):
    factor = schedule(steps=12, warmup_steps=4, final=0)
    assert [factor(step) > 0 for step in range(13)] == [True] * 12 + [False]


@pytest.mark.parametrize("schedule", ENDING.values(), ids=ENDING)
def test_a_run_that_is_shorter_than_its_warm_up_has_nothing_else(schedule, caplog):
    factor = schedule(steps=2, warmup_steps=4, final=0)
    assert [factor(step) for step in range(3)] == [0.25, 0.5, 0.75]
    assert schedule(steps=4, warmup_steps=4, final=0)(4) == 1
    assert "all 2 steps are warm-up (4), and the learning rate never falls: give schedule.warmup_steps=1" in caplog.text


@pytest.mark.medium
def test_constant_by_hand():
    factor = built("schedule/constant", warmup_steps=2)
    assert [factor(step) for step in (0, 1, 2, 1000)] == [0.5, 1, 1, 1]


@pytest.mark.parametrize("decay", [0, 0.9])
def test_a_fall_that_would_begin_in_the_warm_up_is_refused(decay):
    with pytest.raises(ValueError, match=r"schedule\.decay=0.*: .* at most 0\.8"):
        Trapezoid(steps=10, warmup_steps=2, decay=decay, final=0)
