"""Signals to stop: Ctrl-C's, and those that clusters send before they take a machine back. A second one kills."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


@contextlib.contextmanager
def signals_to(handle: Callable[[int], None]) -> Iterator[None]:
    """While it is open, the signals of `STOP` call `handle` with their number; afterwards, what they called before.

    Elsewhere than in the main thread, which alone gets signals, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda number, frame: handle(number)) for number in STOP}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
