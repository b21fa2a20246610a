"""A pool of processes that work on the chunks of a corpus, in order."""

import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from headcount.errors import InputError

SIDES = ("source", "target")

Result = TypeVar("Result")


class Workers:
    """Processes that chunks are spread over; where there is to be one, it is this process itself.

    Used as a context manager.
    """

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "Workers":
        if self.processes > 1:
            # Forked, they have all modules at once, and share their memory.
            context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
            self._pool = ProcessPoolExecutor(self.processes, context, _start_worker)
            self._pool.submit(int).result()  # forks now, before a progress bar has threads and locks
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def each(
        self, function: Callable[[pa.Array, pa.Array], Result], tables: Iterable[pa.Table]
    ) -> Iterator[tuple[pa.Table, Result]]:
        """Every table with what `function` makes of its columns `source` and `target`, in order.

        Raises InputError where a process was killed.
        """
        if self._pool is None:
            yield from ((table, function(*_sides(table))) for table in tables)
            return
        try:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "function"
                file.write_bytes(pickle.dumps(function))
                yield from self._spread(partial(_call, file), tables)
        except BrokenProcessPool as error:
            raise InputError(
                "a process that helped to prepare the data was killed; if memory was short, start again with fewer "
                "cores, such as `taskset -c 0` before the command"
            ) from error

    def _spread(
        self, function: Callable[[pa.Array, pa.Array], Result], tables: Iterable[pa.Table]
    ) -> Iterator[tuple[pa.Table, Result]]:
        assert self._pool is not None
        waiting: deque[tuple[pa.Table, Future[Result]]] = deque()
        for table in tables:
            waiting.append((table, self._pool.submit(function, *_sides(table))))
            if len(waiting) > 2 * self.processes:  # enough to keep all busy, and no more in memory
                table, future = waiting.popleft()
                yield table, future.result()
        while waiting:
            table, future = waiting.popleft()
            yield table, future.result()


def _sides(table: pa.Table) -> list[pa.Array]:
    """The columns as arrays of their own: of a slice, the whole would be sent to another process."""
    return [table[side].combine_chunks() for side in SIDES]


def _call(file: Path, source: pa.Array, target: pa.Array) -> Any:
    return _function_in(file)(source, target)


@lru_cache(maxsize=1)
def _function_in(file: Path) -> Callable[[pa.Array, pa.Array], Any]:
    """What a worker does until it is given another file. With the tokenizer or all held-out text it is large, so every
    process reads it once and does not get it with every chunk."""
    return pickle.loads(file.read_bytes())


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A killed parent says nothing, and left over, this process would keep its lock."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
