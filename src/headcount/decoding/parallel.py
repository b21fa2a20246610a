"""Parallel search of batches on a CPU: processes of one thread each, or Python threads that share torch's threads.

A step of search is hundreds of small operations. If several threads of torch shared an operation, each would wait for
the slowest at its end. Python threads run one at a time between operations; processes do not wait for one another.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch

from headcount.processes import can_fork, process_pool

MOST_PYTHON_THREADS = 8  # with more, they wait for one another

Result = TypeVar("Result")
Job = tuple[Any, ...]


def parallel_map(function: Callable[..., Result], jobs: Sequence[Job], forks: bool) -> Iterator[Result]:
    """Parallel map: yields `function(*job)` for every job, in order. Work begins with the first `next`.

    Processes of one thread each take one job after the other, where this process can fork, there are more than half as
    many jobs as torch has threads, and what `function` uses works in a forked process (`forks`). Such a process has the
    model from the memory of this one; its results and errors are pickled. Elsewhere a job has a Python thread, with its
    share of torch's threads.

    Raises what `function` raises, after the results of the jobs before; InputError if a process was killed.
    """
    threads = torch.get_num_threads()
    workers = min(threads, len(jobs))
    if workers < 2:
        yield from (function(*job) for job in jobs)
    elif forks and threads // workers == 1 and can_fork():
        yield from _in_processes(function, jobs, workers)
    else:
        yield from _in_threads(function, jobs, min(workers, MOST_PYTHON_THREADS))


def _in_threads(function: Callable[..., Result], jobs: Sequence[Job], workers: int) -> Iterator[Result]:
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(threads // workers,))
    try:
        yield from pool.map(function, *zip(*jobs, strict=True))
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # the workers have set this for the whole process


def _in_processes(function: Callable[..., Result], jobs: Sequence[Job], workers: int) -> Iterator[Result]:
    remedy = "give a smaller search.batch_tokens, or set OMP_NUM_THREADS=1 to have one process"
    with process_pool(workers, "translated", remedy, _set_function, function) as pool:
        yield from pool.map(_call_function, jobs)


# Given to a worker at its start, and not with each job: it holds the model.
_function: Callable[..., Any]


def _set_function(function: Callable[..., Any]) -> None:
    global _function
    _function = function
    # A fork does not copy the threads of OpenMP: an operation that shared its work with them would never end.
    torch.set_num_threads(1)


def _call_function(job: Job) -> Any:
    return _function(*job)
