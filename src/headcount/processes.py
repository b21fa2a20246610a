"""Pools of processes that end with this one."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from headcount.errors import InputError
from headcount.signals import STOP


class WorkerKilledError(InputError):
    """A process of the pool was killed, as where memory is short."""


def can_fork() -> bool:
    """Whether this process may have forked processes that use its memory.

    Not where another thread may hold a lock, which nobody would open in the new process: elsewhere than in the main
    thread. macOS has libraries that break in forked processes, and Windows has none.
    """
    main = threading.current_thread() is threading.main_thread()
    return sys.platform == "linux" and main and not multiprocessing.current_process().daemon


def process_pool(processes: int, initial: Callable[..., None] | None = None, *values: Any) -> ProcessPoolExecutor:
    """A pool whose processes call `initial(*values)` first. They begin with the first work.

    On Linux they are forked: they have all modules and `values` at once, and share memory.
    """
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
    return ProcessPoolExecutor(processes, context, _begin, (initial, *values))


def _begin(initial: Callable[..., None] | None, *values: Any) -> None:
    for number in STOP:
        signal.signal(number, signal.SIG_IGN)  # the parent handles them, and ends the pool
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if initial is not None:
        initial(*values)


def _end_with_parent() -> None:
    """End this process when its parent is killed; otherwise it would keep the parent's lock."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
