"""OpenMP: threads that wait for each other by spinning on a quiet machine, and asleep on a crowded one.

A training step has thousands of parallel regions, and a barrier ends each. GNU's libgomp, torch's own on Linux, spins
there for milliseconds. Beside one busy program on two cores, Linux then gives that program a core of its own, and both
threads of torch the other one: each barrier lasts a time slice, and a step forty times as long. Threads that sleep
lose a third of the speed on a quiet machine, and nothing beside a busy program. So a thread watches how long the
process waits for a core, and switches. The number of threads stays, and with it every bit of the result.
"""

import ctypes
import logging
import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

MAPS = Path("/proc/self/maps")
SECONDS = 1.0  # between two looks
# Share of the time in which a thread waits for a core: beside a busy program 0.5 while threads spin and 0.25 while they
# sleep, without one 0.01.
CROWDED, QUIET = (0.1, 0.05)
QUIET_LOOKS = 5  # in a row, before threads spin again
OWN_CHOICE = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # environment variables of OpenMP that fix how threads wait

logger = logging.getLogger(__name__)


class Team:
    """A team of threads of OpenMP that does nothing.

    While libgomp has more threads than there are cores, each spins a thousandth of the time and then sleeps
    (`gomp_managed_threads` in its team.c, `gomp_throttled_spin_count_var` in its wait.h); no call of it sets how long
    they spin. It keeps the team of a thread until that thread ends.
    """

    def __init__(self, libgomp: ctypes.CDLL, threads: int) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._hold, args=(libgomp, threads), name="openmp-team", daemon=True)
        self._thread.start()

    def _hold(self, libgomp: ctypes.CDLL, threads: int) -> None:
        # As a compiler calls it for a parallel region, whose body is here a function that does nothing.
        libgomp.GOMP_parallel(libgomp.omp_get_thread_num, None, threads, 0)
        self._ended.wait()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


class Waiting:
    """How the threads of OpenMP wait at a barrier: spinning, or `asleep`. `look` is called once a second."""

    def __init__(self, libgomp: ctypes.CDLL, threads: int, cores: int) -> None:
        self._libgomp = libgomp
        self._threads = threads
        self._needed = max(1, math.ceil((cores - threads + 1) / (threads - 1)))  # teams, each of threads - 1 new ones
        self._teams: list[Team] = []
        self._quiet = 0
        self._said = False

    @property
    def asleep(self) -> bool:
        return bool(self._teams)

    def look(self, waited: float) -> None:
        """Switch where that is due. waited: the share of the last second in which this process waited for a core."""
        self._quiet = self._quiet + 1 if waited < QUIET else 0
        if not self.asleep and waited > CROWDED:
            self._teams = [Team(self._libgomp, self._threads) for _ in range(self._needed)]
            self._say(waited)
        elif self.asleep and self._quiet >= QUIET_LOOKS:
            self.spin()

    def spin(self) -> None:
        for team in self._teams:
            team.end()
        self._teams = []

    def _say(self, waited: float) -> None:
        if not self._said:  # other programs come and go
            logger.info(
                "other programs use the cores, and this one waits %.0f%% of its time for one: its %d threads now sleep "
                "where they wait for each other, until the cores are free again; threads=1 may be as fast",
                100 * waited,
                self._threads,
            )
        self._said = True


@contextmanager
def sleeping_when_crowded() -> Iterator[None]:
    """Let torch's threads sleep at barriers while other programs use the cores; watched is how long the calling thread
    waits for a core.

    Nothing is done with one thread, on another system than Linux, with another OpenMP than libgomp, or where the
    environment says how threads wait.
    """
    threads, delays = torch.get_num_threads(), Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
    libgomp = loaded_libgomp()
    if threads == 1 or libgomp is None or not delays.exists() or any(name in os.environ for name in OWN_CHOICE):
        yield
        return
    waiting, ended = Waiting(libgomp, threads, len(os.sched_getaffinity(0))), threading.Event()
    watch = threading.Thread(target=_watch, args=(delays, waiting, ended), name="openmp-watch", daemon=True)
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join()
        waiting.spin()


def loaded_libgomp() -> ctypes.CDLL | None:
    """The libgomp that this process uses; None without one."""
    try:
        paths = {line.split(maxsplit=5)[-1].strip() for line in MAPS.read_text().splitlines() if "libgomp" in line}
    except OSError:
        return None
    return ctypes.CDLL(paths.pop()) if len(paths) == 1 else None


def _watch(delays: Path, waiting: Waiting, ended: threading.Event) -> None:
    before, then = _waited(delays), time.monotonic()
    while not ended.wait(SECONDS):
        total, now = _waited(delays), time.monotonic()
        waiting.look((total - before) / (now - then))
        before, then = total, now


def _waited(delays: Path) -> float:
    """Seconds in which a thread could have run and had no core: the second number of Linux's schedstat."""
    return int(delays.read_text().split()[1]) / 1e9
