"""Signals to stop: one that comes twice within a second counts once, a later one does what it did before."""

import contextlib
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


@pytest.fixture
def before():
    """The signals that the handler of SIGTERM gets that is there before."""
    came = []

    def handler(number, frame):
        came.append(number)

    handlers = {number: signal.getsignal(number) for number in signals.STOP}
    signal.signal(signal.SIGTERM, handler)
    yield came
    for number, each in handlers.items():
        signal.signal(number, each)


def test_a_signal_that_comes_again_within_a_second_is_the_same_one(clock, before):
    came = []
    with signals_to(came.append):
        for clock[0], number in (
            (100, signal.SIGTERM),
            (100.9, signal.SIGTERM),
            (100.95, signal.SIGUSR1),
            (101, signal.SIGTERM),
            (101.5, signal.SIGTERM),
        ):
            signal.raise_signal(number)
    assert came == [signal.SIGTERM, signal.SIGUSR1, signal.SIGTERM]
    assert not before


def test_a_signal_after_the_second_does_what_it_did_before(clock, before):
    was = signal.getsignal(signal.SIGTERM)
    listening = contextlib.ExitStack()
    came = []
    listening.enter_context(signals_to(lambda number: (came.append(number), listening.close())))
    signal.raise_signal(signal.SIGTERM)
    clock[0] += 0.9
    signal.raise_signal(signal.SIGTERM)
    assert (came, before) == ([signal.SIGTERM], [])
    clock[0] += 0.2
    signal.raise_signal(signal.SIGTERM)
    assert (came, before) == ([signal.SIGTERM], [signal.SIGTERM])
    assert signal.getsignal(signal.SIGTERM) is was


def test_a_signal_after_the_second_reaches_whoever_listened_before(clock, before):
    outer, listening = [], contextlib.ExitStack()
    with signals_to(outer.append):
        listening.enter_context(signals_to(lambda number: listening.close()))
        signal.raise_signal(signal.SIGTERM)
        assert outer == []
        clock[0] += 2
        signal.raise_signal(signal.SIGTERM)
        assert outer == [signal.SIGTERM]


def test_a_signal_is_the_same_one_for_whoever_listens_next(clock, before):
    first, second = [], []
    with signals_to(first.append):
        signal.raise_signal(signal.SIGTERM)
    with signals_to(second.append):
        signal.raise_signal(signal.SIGTERM)
        clock[0] += 1
        signal.raise_signal(signal.SIGTERM)
    assert (len(first), len(second)) == (1, 1)


def test_handlers_are_put_back_where_no_signal_came(clock, before):
    handlers = [signal.getsignal(number) for number in signals.STOP]
    with signals_to(before.append):
        pass
    assert [signal.getsignal(number) for number in signals.STOP] == handlers
