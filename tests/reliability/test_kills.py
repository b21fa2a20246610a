"""A run that is killed at any moment, and started again by the same command, ends as one that was never killed."""

import kills
import pytest

pytestmark = pytest.mark.reliability


def test_runs_killed_and_stopped_at_random_moments_end_as_if_never_stopped():
    number, stops, seed, jobs = kills.given()
    reports = kills.campaigns(list(kills.RECIPES), number, stops, seed, jobs)
    print(kills.table(reports))  # noqa: T201
    assert not [line for report in reports.values() for line in report.wrong]
    assert max(report.slowest_stop for report in reports.values()) < 10  # seconds
    assert sum(sum(report.kills.values()) for report in reports.values()) == number
    assert sum(sum(report.stops.values()) for report in reports.values()) == stops
