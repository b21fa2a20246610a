"""Several batches at once on a CPU, which share its threads.

A step of search is hundreds of small operations. With several threads each operation would end with all waiting for
the slowest; so a batch has a process of its own. It has a thread instead where processes cannot be forked, or batches
are so few that each gets several threads of torch. Threads of Python take turns, which processes do not.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

import torch

from headcount.processes import WorkerKilledError, can_fork, process_pool

MOST_THREADS = 8  # batches at once where they take turns with Python

Result = TypeVar("Result")
Job = tuple[Any, ...]


def at_once(function: Callable[..., Result], jobs: Sequence[Job], forks: bool) -> Iterator[Result]:
    """`function(*job)` of every job, in order. forks: whether what `function` uses works in a forked process.

    A process has the memory of this one as it is now, and so the same model; what `function` changes there is lost.
    Raises WorkerKilledError if a process was killed.
    """
    threads = torch.get_num_threads()
    workers = min(threads, len(jobs))
    if workers < 2:
        yield from (function(*job) for job in jobs)
    elif forks and threads // workers == 1 and can_fork():
        yield from _in_processes(function, jobs, workers)
    else:
        yield from _in_threads(function, jobs, min(workers, MOST_THREADS))


def _in_threads(function: Callable[..., Result], jobs: Sequence[Job], workers: int) -> Iterator[Result]:
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(threads // workers,))
    try:
        yield from pool.map(function, *zip(*jobs, strict=True))
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # the workers have set this for the whole process


def _in_processes(function: Callable[..., Result], jobs: Sequence[Job], workers: int) -> Iterator[Result]:
    pool = process_pool(workers, _begin, function)
    try:
        yield from pool.map(_call, jobs)
    except BrokenProcessPool as error:
        raise WorkerKilledError(
            "a process that translated was killed; if memory was short, give a smaller search.batch_tokens or fewer "
            "cores, such as threads=1"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


_function: Callable[..., Any]  # of this process of the pool


def _begin(function: Callable[..., Any]) -> None:
    global _function
    _function = function
    torch.set_num_threads(1)  # the threads of OpenMP that the parent has are not here: work for them would never end


def _call(job: Job) -> Any:
    return _function(*job)
