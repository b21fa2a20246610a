"""Limits of time and memory for a block of a test."""

import contextlib
import ctypes
import faulthandler
import re
import resource
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path


class Late(BaseException):
    """The end of a block that takes too long; no `except Exception` takes it for an error that was expected."""


@contextlib.contextmanager
def seconds(most: int) -> Iterator[None]:
    """Raises Late for a block that takes longer, also where that is caught."""

    def late(*_: object) -> None:
        raise Late(f"not done after {most} s")

    handler, begin = signal.signal(signal.SIGALRM, late), time.monotonic()
    signal.alarm(most)
    # Where it waits outside of Python, as for a pipe, which no exception ends: the whole process does.
    faulthandler.dump_traceback_later(most + 60, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
    if time.monotonic() - begin >= most:
        late()


@contextlib.contextmanager
def memory(most: float, addresses: float) -> Iterator[None]:
    """Raises AssertionError for a block that takes more bytes than `most`; an allocation beyond `addresses`, of which a
    file that is mapped has some without taking memory, is a MemoryError in any case."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    getattr(ctypes.CDLL(None), "malloc_trim", id)(0)  # what glibc keeps of before would hide as much
    with contextlib.suppress(OSError):  # where it cannot be reset, the difference is too small
        Path("/proc/self/clear_refs").write_text("5")
    begin = most_memory()
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + int(addresses), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    taken = most_memory() - begin
    assert taken <= most, f"took {taken / 2**20:.0f} MB more"


def most_memory() -> int:
    """The most memory that this process has had since that was last reset, in bytes."""
    return 1024 * int(re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())[0])
