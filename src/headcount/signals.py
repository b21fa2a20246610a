"""Signals to stop: that of Ctrl-C, and those that clusters send before they take a machine back.

Each part of a training has a handler of its own. A second signal kills, unless it comes within a second of the first.

before the first step   `remembered` (run/train.py): ends after the first step
steps, validation       `StopOnInterrupt` (training/callbacks.py): ends after the step in hand, with a checkpoint
choice of weights       `remembered`: ends before the scoring
scoring                 `stoppable` (run/train.py): ends at once, with a line
a sweep                 `forwarded_signals` (run/sweep.py): the jobs that run get the signal
"""

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

STOP = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2") if hasattr(signal, name))
# Seconds in which a signal that comes again is the same one: a process gets it for itself and with its group, or from a
# sweep that stops and from the system when that has ended.
AGAIN = 1.0

Handler = Callable[[int, FrameType | None], object] | int | None

_came: dict[int, float] = {}  # when each signal counted last, by the clock


@contextlib.contextmanager
def signals_to(handle: Callable[[int], None]) -> Iterator[None]:
    """While it is open, the signals of `STOP` call `handle` with their number; afterwards, what they called before.

    A signal that comes again within `AGAIN` seconds does nothing, also when it has been closed since. Elsewhere than in
    the main thread, which alone gets signals, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def come(number: int, frame: FrameType | None) -> None:
        if not _is_again(number):
            _came[number] = time.monotonic()
            handle(number)

    before = {number: signal.signal(number, come) for number in STOP}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, _later(handler) if _is_again(number) else handler)


def _is_again(number: int) -> bool:
    return time.monotonic() - _came.get(number, -math.inf) < AGAIN


def _later(before: Handler) -> Handler:
    """A handler that gives way to `before` at the first signal that counts, which `before` may count itself."""

    def come(number: int, frame: FrameType | None) -> None:
        if not _is_again(number):
            signal.signal(number, before)
            signal.raise_signal(number)

    return come
