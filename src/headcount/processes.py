"""Processes: pools of workers that exit when their parent does, and the cores that a process may use."""

import contextlib
import ctypes
import math
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from headcount.errors import InputError
from headcount.signals import STOP

PR_SET_PDEATHSIG = 1  # of Linux's prctl


def can_fork() -> bool:
    """Whether this process may fork workers that use its memory.

    True on Linux, in the main thread of a process that is not a daemon. macOS has libraries that break in a forked
    process, and a daemon may have no children. Other threads may exist, such as that of a progress bar; a worker must
    wait for none of their locks, so it prints nothing.
    """
    main = threading.current_thread() is threading.main_thread()
    return sys.platform == "linux" and main and not multiprocessing.current_process().daemon


@contextlib.contextmanager
def process_pool(
    processes: int, task: str, remedy: str, initial: Callable[..., None] | None = None, *values: Any
) -> Iterator[ProcessPoolExecutor]:
    """A pool whose workers call `initial(*values)` first. They start with the first submitted job, and ignore the
    signals of `STOP`, which the parent handles. An exception inside, or a killed worker, ends all workers at once.

    task: what a worker did, for the InputError that says that one was killed. remedy: for short memory.

    On Linux they are forked: they have all modules and `values` at once, and share memory. Elsewhere `initial` and
    `values` are pickled.
    """
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
    read, write = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(processes, context, _start_worker, (read, initial, *values))
    with read, write:
        try:
            yield pool
        except BaseException as error:
            # They may be in the middle of long jobs, or wait for ever: for a lock that a killed worker holds, or to
            # write a result that nobody reads any more.
            write.send_bytes(b"end")  # nobody reads it, so all see it
            if isinstance(error, BrokenProcessPool):
                raise InputError(f"a process that {task} was killed; if memory was short, {remedy}") from error
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _start_worker(end: Connection, initial: Callable[..., None] | None, *values: Any) -> None:
    for number in STOP:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_exit_with, args=(end,), daemon=True).start()
    if initial is not None:
        initial(*values)


def _exit_with(end: Connection) -> None:
    """Exit once the pool says so, or the parent was killed; otherwise this process would keep the parent's lock."""
    parent = multiprocessing.parent_process()
    wait([end] if parent is None else [end, parent.sentinel])
    os._exit(1)


def cores() -> int:
    """Processor cores that this process may use, at least 1: those it may run on, and no more than the CPU quota of its
    control group (such as a container's), rounded up."""
    allowed = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quota = cpu_quota()
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def cpu_quota(cgroups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float | None:
    """Cores' worth of processor time that this process and its siblings get; None without a limit.

    It is the least quota of its control group and of all above, in version 2 (`cpu.max`) or 1 (`cpu.cfs_quota_us`).
    """
    quotas = []
    for line in own.read_text().splitlines() if own.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        group = Path(path.lstrip("/"))
        for folder in (group, *group.parents):
            with contextlib.suppress(OSError, ValueError):  # no such files, or "max"
                if controllers:
                    files = (cgroups / "cpu" / folder / f"cpu.cfs_{name}_us" for name in ("quota", "period"))
                    quota, period = (int(file.read_text()) for file in files)
                else:
                    quota, period = map(int, (cgroups / folder / "cpu.max").read_text().split())
                quotas += [quota / period] if quota > 0 else []
    return min(quotas, default=None)


def end_with_parent(parent: int | None = None) -> None:
    """Let Linux send this process SIGTERM when its parent is killed; also after it has called `exec`.

    parent: its process number. Raises SystemExit where that has ended already.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if parent not in (None, os.getppid()):
        raise SystemExit(128 + signal.SIGTERM)
