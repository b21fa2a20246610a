"""Several batches at once: in processes, or in threads."""

import multiprocessing
import os
import pickle
import signal
import threading
import time

import pytest
import torch

from headcount.decoding.parallel import MOST_PYTHON_THREADS, parallel_map
from headcount.decoding.search import NOT_FINITE, NotFiniteError
from headcount.errors import InputError
from headcount.processes import can_fork

forked = pytest.mark.skipif(not can_fork(), reason="this process cannot fork")


@pytest.fixture(autouse=True)
def two_threads():
    torch.set_num_threads(2)


def where(number: int) -> tuple[int, int, int]:
    """The number, and the process and the number of threads that were given to it."""
    return number, os.getpid(), torch.get_num_threads()


def jobs(count: int) -> list[tuple[int]]:
    return [(number,) for number in range(count)]


@forked
@pytest.mark.parametrize(("threads", "count"), [(2, 9), (3, 3), (5, 3)])
def test_processes_answer_in_order_with_a_thread_each(threads, count):
    torch.set_num_threads(threads)
    found = list(parallel_map(where, jobs(count), forks=True))
    assert [number for number, _, _ in found] == list(range(count))
    assert {given for _, _, given in found} == {1}
    assert 1 <= len({process for _, process, _ in found}) <= threads
    assert os.getpid() not in {process for _, process, _ in found}
    assert torch.get_num_threads() == threads
    assert not multiprocessing.active_children()


def test_threads_take_the_place_of_processes():
    torch.set_num_threads(2 * MOST_PYTHON_THREADS)
    found = list(parallel_map(where, jobs(50), forks=False))
    assert found == [(number, os.getpid(), 2) for number in range(50)]
    assert torch.get_num_threads() == 2 * MOST_PYTHON_THREADS


def test_only_the_main_thread_forks():
    """Another one, as of a server, could copy a lock that a third holds."""
    found: list[tuple[int, int, int]] = []
    thread = threading.Thread(target=lambda: found.extend(parallel_map(where, jobs(3), forks=True)))
    thread.start()
    thread.join()
    assert [process for _, process, _ in found] == [os.getpid()] * 3


@pytest.mark.medium
@forked
def test_a_process_computes_after_this_one_did_with_several_threads():
    """Threads of OpenMP are not in a forked process; work that waits for them never ends."""
    matrix = torch.randn(600, 600)
    expected = (matrix @ matrix).softmax(dim=1)  # begins the threads of this process
    for product in parallel_map(lambda number: (matrix @ matrix).softmax(dim=1), jobs(2), forks=True):
        torch.testing.assert_close(product, expected)


def fail(number: int) -> int:
    if number == 2:
        raise NotFiniteError(f"runs/a: {NOT_FINITE}")
    return number


@pytest.mark.parametrize("forks", [True, False])
def test_a_failure_is_raised_after_what_came_before_it(forks):
    results = parallel_map(fail, jobs(9), forks)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(NotFiniteError, match=r"^runs/a: its probabilities are not finite") as raised:
        next(results)
    assert str(raised.value) == str(pickle.loads(pickle.dumps(raised.value)))
    assert torch.get_num_threads() == 2
    assert not multiprocessing.active_children()


KILLED = r"^a process that translated was killed; .*batch_tokens.*OMP_NUM_THREADS=1 to have one process$"


def process_or_long(number: int) -> int:
    time.sleep(30 * number)
    return os.getpid()


@forked
def test_a_process_killed_between_jobs_ends_one_that_works():
    results = parallel_map(process_or_long, jobs(2), forks=True)
    os.kill(next(results), signal.SIGKILL)
    with pytest.raises(InputError, match=KILLED):
        next(results)
    assert not multiprocessing.active_children()


@forked
def test_an_end_in_the_middle_ends_the_processes_in_their_jobs():
    results = parallel_map(process_or_long, jobs(5), forks=True)
    next(results)
    processes = multiprocessing.active_children()
    results.close()
    assert [process.exitcode for process in processes] == [1, 1]


@forked
def test_signals_to_stop_are_left_to_the_parent():

    def signalled(number: int) -> int:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            os.kill(os.getpid(), each)
        return number

    assert list(parallel_map(signalled, jobs(3), forks=True)) == [0, 1, 2]
