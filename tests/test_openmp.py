"""Threads of OpenMP: spinning, asleep while the machine is crowded, and the same bits either way."""

import ctypes
import os
import subprocess
import sys
import threading
import time
from itertools import count

import pytest
import torch

from headcount import openmp
from headcount.openmp import QUIET_LOOKS, Waiting, loaded_libgomp, sleeping_when_crowded

LIBGOMP = loaded_libgomp()
needs_libgomp = pytest.mark.skipif(LIBGOMP is None, reason="torch has another OpenMP than libgomp here")


def teams():
    return sum(thread.name == "openmp-team" for thread in threading.enumerate())


def until(true):
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Calls(ctypes.CDLL):
    """Stands for libgomp, and keeps the numbers of threads that teams were asked for."""

    def __init__(self):
        self.threads = []
        self.omp_get_thread_num = None

    def GOMP_parallel(self, function, argument, threads, flags):  # noqa: N802
        self.threads.append(threads)


@pytest.mark.parametrize(("threads", "cores", "needed"), [(2, 2, 1), (4, 4, 1), (2, 4, 3), (3, 4, 1), (4, 2, 1)])
def test_there_are_more_threads_than_cores_while_training_waits(threads, cores, needed):
    waiting = Waiting(Calls(), threads, cores)
    waiting.look(0.5)
    assert threads + needed * (threads - 1) > cores
    assert teams() == needed
    waiting.spin()
    assert teams() == 0
    assert waiting._libgomp.threads == [threads] * needed


def test_threads_spin_again_once_the_machine_was_quiet_for_some_seconds(caplog):
    caplog.set_level("INFO", "headcount")
    waiting = Waiting(Calls(), 2, 2)
    looks = [0.01, 0.08, 0.5, 0.3, *[0.01] * (QUIET_LOOKS - 1), 0.08, *[0.01] * QUIET_LOOKS, 0.01, 0.3]
    asleep = []
    for waited in looks:
        waiting.look(waited)
        asleep.append(waiting.asleep)
    waiting.spin()
    assert asleep == [False] * 2 + [True] * (2 * QUIET_LOOKS + 1) + [False] * 2 + [True]
    assert [record.getMessage() for record in caplog.records] == [
        "other programs use the cores, and this one waits 50% of its time for one: its 2 threads now sleep where they "
        "wait for each other, until the cores are free again; threads=1 may be as fast"
    ]


@needs_libgomp
def test_a_team_of_libgomp_lives_as_long_as_threads_sleep():
    code = """if True:  # in a process of its own: here threads of other tests may begin and end
        import os, time
        import torch
        from headcount.openmp import Waiting, loaded_libgomp
        def threads():
            time.sleep(0.2)  # an ended thread leaves a moment after it is joined
            return set(os.listdir("/proc/self/task"))
        torch.set_num_threads(2)
        torch.zeros(10**6).neg_()
        before, waiting = threads(), Waiting(loaded_libgomp(), 2, 2)
        waiting.look(0.5)
        print(len(threads() - before))
        waiting.spin()
        print(threads() == before)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2\nTrue\n"  # the team's first thread and its other one


@needs_libgomp
def test_sleeping_threads_compute_the_same_bits():
    code = """if True:  # in a process of its own, since the tests have one thread
        import torch
        from headcount.openmp import Waiting, loaded_libgomp
        torch.set_num_threads(2)
        def step():
            torch.manual_seed(0)
            x, weight = torch.randn(500, 300, requires_grad=True), torch.randn(300, 700, requires_grad=True)
            (x @ weight).softmax(-1).log().mean().backward()
            return weight.grad.numpy().tobytes(), torch.randn(10**6).sum().item()
        spinning, waiting = step(), Waiting(loaded_libgomp(), 2, 2)
        waiting.look(1.0)
        print(waiting.asleep, step() == spinning)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"


@needs_libgomp
@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="this Linux does not count waits")
def test_the_thread_that_trains_is_watched(monkeypatch):
    monkeypatch.setattr(openmp, "SECONDS", 0.01)
    seconds = count()
    monkeypatch.setattr(openmp, "_waited", lambda delays: next(seconds))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    for name in openmp.OWN_CHOICE:
        monkeypatch.delenv(name, raising=False)
    with sleeping_when_crowded():
        until(teams)
    assert teams() == 0
    assert not any(thread.name == "openmp-watch" for thread in threading.enumerate())


@pytest.mark.parametrize("why", ["one thread", "another OpenMP", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"])
def test_nothing_is_watched_without_need(why, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1 if why == "one thread" else 2)
    if why == "another OpenMP":
        monkeypatch.setattr(openmp, "loaded_libgomp", lambda: None)
    elif why != "one thread":
        monkeypatch.setenv(why, "passive")
    with sleeping_when_crowded():
        assert not any(thread.name == "openmp-watch" for thread in threading.enumerate())
