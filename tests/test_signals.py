"""Signals to stop: one that comes twice within a second counts once."""

import signal

import pytest

from headcount import signals
from headcount.signals import signals_to


@pytest.fixture
def clock(monkeypatch):
    """The time in seconds that the clock shows, to be set."""
    now = [100.0]
    monkeypatch.setattr(signals, "AGAIN", 1.0)
    monkeypatch.setattr(signals, "_came", {})
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
    return now


def test_a_signal_that_comes_again_within_a_second_is_the_same_one_whoever_listens(clock):
    outer, inner, before = [], [], {number: signal.getsignal(number) for number in signals.STOP}
    term, usr1 = signal.SIGTERM, signal.SIGUSR1
    with signals_to(outer.append):
        with signals_to(inner.append):
            for clock[0], number in ((100, term), (100.9, term), (100.95, usr1), (101, term)):
                signal.raise_signal(number)
        assert inner == [term, usr1, term]
        clock[0] = 101.5
        signal.raise_signal(term)
        assert outer == []
        clock[0] = 103
        signal.raise_signal(term)
        assert outer == [term]
        clock[0] = 105
    assert {number: signal.getsignal(number) for number in signals.STOP} == before
