"""Schedules against numbers computed by hand."""

from functools import partial

import pytest
from built import built

from headcount.training.schedule import Cosine, Linear, Noam, Trapezoid


@pytest.mark.medium
@pytest.mark.parametrize(
    ("kind", "by_hand"),
    [
        ("inverse_sqrt", {0: 0.25, 1: 0.5, 2: 0.75, 3: 1.0, 15: 0.5, 399: 0.1}),
        ("constant", {0: 0.25, 1: 0.5, 3: 1.0, 4: 1.0, 1000: 1.0}),
    ],
)
def test_schedules_without_an_end_by_hand(kind, by_hand):
    factor = built(f"schedule/{kind}", warmup_steps=4)
    assert {step: factor(step) for step in by_hand} == by_hand


def test_noam_is_the_inverse_square_root_with_the_papers_constant():
    noam, root = Noam(d_model=64, warmup_steps=4), built("schedule/inverse_sqrt", warmup_steps=4)
    for step in (0, 3, 15, 399):
        assert noam(step) == pytest.approx(root(step) * 64**-0.5 * 4**-0.5)


ENDING = {"cosine": Cosine, "line": Linear, "trapezoid": partial(Trapezoid, decay=0.4)}


@pytest.mark.parametrize(
    ("schedule", "by_hand"),
    [
        ("cosine", {4: 1.0, 8: 0.6, 12: 0.2, 50: 0.2}),  # at 8 half the way down; at 50 whoever goes on beyond
        ("line", {4: 1.0, 6: 0.8, 8: 0.6, 12: 0.2, 50: 0.2}),
        ("trapezoid", {4: 1.0, 7: 1.0, 8: 1 - 0.8 * (0.8 / 4.8), 9: 0.7, 12: 0.2, 50: 0.2}),
    ],
)
def test_schedules_with_an_end_by_hand(schedule, by_hand):
    factor = ENDING[schedule](steps=12, warmup_steps=4, final=0.2)
    assert [factor(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert [factor(step) for step in by_hand] == pytest.approx(list(by_hand.values()))
    # Every step of one that ends at zero has a rate above zero.
    factor = ENDING[schedule](steps=12, warmup_steps=4, final=0)
    assert [factor(step) > 0 for step in range(13)] == [True] * 12 + [False]


@pytest.mark.parametrize("schedule", ENDING.values(), ids=ENDING)
def test_a_run_that_is_shorter_than_its_warm_up_has_nothing_else(schedule, caplog):
    factor = schedule(steps=2, warmup_steps=4, final=0)
    assert [factor(step) for step in range(3)] == [0.25, 0.5, 0.75]
    assert schedule(steps=4, warmup_steps=4, final=0)(4) == 1
    assert "all 2 steps are warm-up (4), and the learning rate never falls: give schedule.warmup_steps=1" in caplog.text


@pytest.mark.parametrize("decay", [0, 0.9])
def test_a_fall_that_would_begin_in_the_warm_up_is_refused(decay):
    with pytest.raises(ValueError, match=r"schedule\.decay=0.*: .* at most 0\.8"):
        Trapezoid(steps=10, warmup_steps=2, decay=decay, final=0)
