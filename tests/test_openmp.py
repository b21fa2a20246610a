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

needs_libgomp = pytest.mark.skipif(loaded_libgomp() is None, reason="torch has another OpenMP than libgomp here")


def threads(name):
    return sum(thread.name == name for thread in threading.enumerate())


class Calls(ctypes.CDLL):
    """Stands for libgomp."""

    def __init__(self):
        self.omp_get_thread_num = None

    def GOMP_parallel(self, function, argument, threads, flags):  # noqa: N802
        pass


def test_threads_spin_again_once_the_machine_was_quiet_for_some_seconds(caplog):
    caplog.set_level("INFO", "headcount")
    waiting, asleep = Waiting(Calls(), 2, 2), []
    for waited in [0.01, 0.08, 0.5, 0.3, *[0.01] * (QUIET_LOOKS - 1), 0.08, *[0.01] * QUIET_LOOKS, 0.01, 0.3]:
        waiting.look(waited)
        asleep.append(waiting.asleep)
    assert threads("openmp-team") == 1
    waiting.spin()
    assert threads("openmp-team") == 0
    assert asleep == [False] * 2 + [True] * (2 * QUIET_LOOKS + 1) + [False] * 2 + [True]
    (record,) = caplog.records
    assert record.getMessage().startswith("other programs use the cores, and this one waits 50% of its time for one: ")


@needs_libgomp
def test_sleeping_threads_compute_the_same_bits_and_their_team_ends():
    code = """if True:  # in a process of its own, since the tests have one thread
        import os, time, torch
        from headcount.openmp import Waiting, loaded_libgomp
        def step():
            torch.manual_seed(0)
            x, weight = torch.randn(500, 300, requires_grad=True), torch.randn(300, 700, requires_grad=True)
            (x @ weight).softmax(-1).log().mean().backward()
            return weight.grad.numpy().tobytes(), torch.randn(10**6).sum().item()
        def threads():
            time.sleep(0.2)  # an ended thread leaves a moment after it is joined
            return set(os.listdir("/proc/self/task"))
        torch.set_num_threads(2)
        spinning, before, waiting = step(), threads(), Waiting(loaded_libgomp(), 2, 2)
        waiting.look(1.0)
        print(waiting.asleep, len(threads() - before), step() == spinning)
        waiting.spin()
        print(threads() == before)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True 2 True\nTrue\n"  # the team's first thread and its other one


@needs_libgomp
@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="this Linux does not count waits")
def test_the_thread_that_trains_is_watched_where_there_is_a_need(monkeypatch):
    monkeypatch.setattr(openmp, "SECONDS", 0.01)
    seconds = count()
    monkeypatch.setattr(openmp, "_waited", lambda delays: next(seconds))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    for name in openmp.OWN_CHOICE:
        monkeypatch.delenv(name, raising=False)
    with sleeping_when_crowded():
        deadline = time.monotonic() + 60
        while not threads("openmp-team"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert threads("openmp-team") == threads("openmp-watch") == 0
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    with sleeping_when_crowded():
        assert threads("openmp-watch") == 0
