"""A pool of processes that work on the chunks of a corpus, in order."""

import pickle
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from headcount.processes import kills_named, process_pool

SIDES = ("source", "target")

Result = TypeVar("Result")


class Workers:
    """A pool of processes, a context manager; with `processes` 1, this process does the work itself."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self._pool: ProcessPoolExecutor | None = None
        self._open = ExitStack()

    def __enter__(self) -> "Workers":
        if self.processes > 1:
            self._pool = self._open.enter_context(process_pool(self.processes))
            self._pool.submit(int).result()  # forks here, before a progress bar has threads and locks
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def each(
        self, function: Callable[[pa.Array, pa.Array], Result], tables: Iterable[tuple[int, pa.Table]]
    ) -> Iterator[tuple[int, pa.Table, Result]]:
        """Every table with its number, in order, and the result of `function` on its columns `source` and `target`.

        Raises WorkerKilledError if a process was killed.
        """
        if self._pool is None:
            yield from ((number, table, function(*_sides(table))) for number, table in tables)
            return
        remedy = "start again with fewer cores, such as threads=1"
        with kills_named("helped to prepare the data", remedy), tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "function"
            file.write_bytes(pickle.dumps(function))
            yield from self._spread(partial(_call, file), tables)

    def _spread(
        self, function: Callable[[pa.Array, pa.Array], Result], tables: Iterable[tuple[int, pa.Table]]
    ) -> Iterator[tuple[int, pa.Table, Result]]:
        assert self._pool is not None
        waiting: deque[tuple[int, pa.Table, Future[Result]]] = deque()
        for number, table in tables:
            waiting.append((number, table, self._pool.submit(function, *_sides(table))))
            if len(waiting) > 2 * self.processes:  # keeps all processes busy, and memory small
                number, table, future = waiting.popleft()
                yield number, table, future.result()
        while waiting:
            number, table, future = waiting.popleft()
            yield number, table, future.result()


def _sides(table: pa.Table) -> list[pa.Array]:
    """The columns as whole arrays: a slice would be sent to another process with all of its array."""
    return [table[side].combine_chunks() for side in SIDES]


def _call(file: Path, source: pa.Array, target: pa.Array) -> Any:
    return _function_in(file)(source, target)


@lru_cache(maxsize=1)
def _function_in(file: Path) -> Callable[[pa.Array, pa.Array], Any]:
    """The pickled function in `file`. It can be large (it holds the tokenizer, or all held-out text), so every process
    reads it once instead of receiving it with every chunk."""
    return pickle.loads(file.read_bytes())
