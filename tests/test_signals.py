"""Signals to stop: who listens last gets them, and afterwards who listened before."""

import signal

from headcount.signals import STOP, signals_to


def test_a_signal_goes_to_who_listens_last_and_the_handlers_of_before_come_back():
    outer, inner, before = [], [], {number: signal.getsignal(number) for number in STOP}
    with signals_to(outer.append):
        with signals_to(inner.append):
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGTERM)
    assert (inner, outer) == ([signal.SIGTERM, signal.SIGUSR1], [signal.SIGTERM])
    assert {number: signal.getsignal(number) for number in STOP} == before
