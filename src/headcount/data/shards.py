"""Shards: parts of a corpus whose results are files in a folder, until all of them are there.

Several processes, of several machines, may fill one folder. Each takes a shard that no other has and that is not
finished. A file with its final name is whole; what a killed process had begun is begun anew, by any other.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
from filelock import FileLock, Timeout

from headcount.data.arrow import read_tables, write_tables
from headcount.errors import InputError
from headcount.files import replacing, waiting, write_text

CHUNKS = 16  # chunks of one shard

Numbered = Iterable[tuple[int, pa.Table]]  # tables, each with the number of its shard


class Shards:
    """The files NUMBER.arrow of a folder, one a shard, and `number.json` when all are there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def file(self, shard: int) -> Path:
        return self.folder / f"{shard:05}.arrow"

    def read(self) -> Iterator[tuple[int, pa.Table]]:
        """All tables of all shards in order, memory-mapped; only when `fill` has returned.

        Raises InputError for a damaged file.
        """
        for shard in range(self._number() or 0):
            try:
                for table in read_tables(self.file(shard)):
                    yield shard, table
            except (pa.ArrowException, OSError) as error:
                raise InputError(
                    f"{self.file(shard)} is damaged ({error}), so this preparation begins anew: type the same again"
                ) from error

    def fill(
        self, tables: Callable[[], Numbered], work: Callable[[Numbered], Numbered], advance: Callable[[int], None]
    ) -> None:
        """Make the files that are missing, and wait for those that other processes make.

        tables: reads all tables from the first, in order. work: makes the tables of the files from them; it may take
        some in advance. advance: gets the number of rows that are done, here or elsewhere.
        """
        if self._number():
            return
        while True:
            number, missing = self._fill_free(tables(), work, advance)
            if not missing:
                write_text(self.folder / "number.json", f"{number}\n")
                return
            with waiting(self._lock(missing[0]), "another process works on a part of this corpus"):
                advance = ignore  # the rows were counted as the others'

    def _number(self) -> int | None:
        """The number of shards; None if one is not there."""
        try:
            number = int((self.folder / "number.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return number if all(self.file(shard).exists() for shard in range(number)) else None

    def _fill_free(
        self, tables: Numbered, work: Callable[[Numbered], Numbered], advance: Callable[[int], None]
    ) -> tuple[int, list[int]]:
        """Make the files that nobody makes. Returns the number of all shards, and those that others make."""
        taken: dict[int, FileLock | None] = {}

        def free() -> Iterator[tuple[int, pa.Table]]:
            for shard, table in tables:
                if shard not in taken:
                    taken[shard] = self._take(shard)
                if taken[shard]:
                    yield shard, table
                advance(len(table))

        try:
            for shard, results in itertools.groupby(work(free()), key=itemgetter(0)):
                with replacing(self.file(shard)) as beside:
                    # Not one more, since the next begins another shard, and a kill during that would lose this one.
                    write_tables(beside, (table for _, table in itertools.islice(results, CHUNKS)))
                if lock := taken[shard]:
                    lock.release()
        finally:
            for lock in taken.values():
                if lock:
                    lock.release()
        return len(taken), [shard for shard in taken if not self.file(shard).exists()]

    def _take(self, shard: int) -> FileLock | None:
        """The lock of a shard that is neither finished nor another's; else None."""
        if self.file(shard).exists():
            return None
        lock = self._lock(shard)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return None
        if self.file(shard).exists():  # finished in between
            lock.release()
            return None
        return lock

    def _lock(self, shard: int) -> FileLock:
        return FileLock(self.folder / f"{shard:05}.lock")


def numbered(tables: Iterable[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
    """Every table with the number of its shard."""
    return ((index // CHUNKS, table) for index, table in enumerate(tables))


def ignore(rows: int) -> None:
    """An `advance` for work that is not counted."""
