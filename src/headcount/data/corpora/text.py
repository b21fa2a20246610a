"""Parallel text files: two files, a sentence a line."""

import contextlib
import gzip
import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from datasets import Dataset

from headcount.data.corpora.corpus import pairs_of
from headcount.errors import InputError

LINES = 2**15  # read from a file at once
MARK = "\ufeff"  # byte order mark
NOT_UTF_8 = (
    "not valid UTF-8; unpack a packed file, or convert the text from its encoding, as with iconv -f UTF-16 -t UTF-8"
)


def read_chunks(path: str | Path, lines: int = LINES) -> Iterator[list[str]]:
    """A UTF-8 text file, plain or gzip (by its first bytes, not its name), in chunks of `lines` lines.

    Lines end at "\\n" only: `str.splitlines` would also cut at U+2028 and others that occur inside sentences, and
    so shift all later lines against the other language. A trailing "\\r" and the byte order marks at the beginning of
    a line are removed. Raises InputError for a file that is missing, unreadable or not UTF-8.
    """
    with _opened(path) as file:
        for number in itertools.count(0, lines):
            content = b"".join(itertools.islice(file, lines))
            if not content:
                return
            try:
                text = decoded(content)
            except UnicodeDecodeError as error:
                line = number + error.object.count(b"\n", 0, error.start) + 1
                raise InputError(f"{path}, line {line}: {NOT_UTF_8}") from None
            chunk = text.split("\n")
            if not chunk[-1].lstrip(MARK):  # nothing follows the last line end
                chunk.pop()
            yield [line.lstrip(MARK).rstrip("\r") for line in chunk]


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[Iterable[bytes]]:
    try:
        with Path(path).open("rb") as file:
            packed = file.peek(2)[:2] == b"\x1f\x8b"
            yield gzip.GzipFile(fileobj=file) if packed else file
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; give the path of a text file, plain or .gz") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error}); give a text file, plain or .gz") from None


def decoded(content: bytes) -> str:
    """Text in UTF-8. Raises UnicodeDecodeError, also for a zero byte, as UTF-16 and most packed files have it."""
    if b"\0" in content:
        raise UnicodeDecodeError("utf-8", content, content.index(b"\0"), len(content), "zero byte")
    return content.decode()


def read_lines(path: str | Path) -> list[str]:
    """All lines of a text file, see `read_chunks`."""
    return list(itertools.chain.from_iterable(read_chunks(path)))


def read_table(
    path: str | Path, needed: Sequence[str], optional: Sequence[str], what: str
) -> list[tuple[int, dict[str, str]]]:
    """The rows of a table with their line numbers: tab-separated, not quoted, with a header, plain or gzip.

    needed: columns that must be there, and full in every row; optional: those that may be there; what: such a table, in
    error messages. Raises InputError with the line.
    """
    names, *rows = [line.split("\t") for line in read_lines(path)] or [[""]]
    for name in (*needed, *optional):
        if names.count(name) > 1 or (name in needed and name not in names):
            allowed = f"{what} has the columns {', '.join(needed)}, and may have {', '.join(optional)} and others"
            raise InputError(f"{path}, line 1: no column {name}, or several; {allowed}")
    if not rows:
        raise InputError(f"{path}: holds no row below its header")
    found = []
    for number, cells in enumerate(rows, start=2):
        if len(cells) != len(names):
            raise InputError(f"{path}, line {number}: {len(cells)} columns where the header has {len(names)}")
        row = dict(zip(names, cells, strict=True))
        if empty := [name for name in needed if not row[name].strip()]:
            raise InputError(f"{path}, line {number}: its {empty[0]} is empty")
        found.append((number, row))
    return found


def read_pairs(source_path: str | Path, target_path: str | Path) -> Dataset:
    """Both sides of a parallel text: line n of one file translates line n of the other.

    Raises InputError for a file that cannot be read, or line counts that differ.
    """
    source, target = (
        pa.chunked_array([pa.array(chunk, pa.string()) for chunk in read_chunks(path)], pa.string())
        for path in (source_path, target_path)
    )
    if len(source) != len(target):
        raise InputError(
            f"{source_path} has {len(source)} lines and {target_path} has {len(target)}; "
            "parallel files need the same number: line n of one is the translation of line n of the other"
        )
    return pairs_of(source, target)


def read_parallel(source_path: str | Path, target_path: str | Path) -> tuple[list[str], list[str]]:
    """Both sides of a parallel text as lists, see `read_pairs`."""
    pairs = read_pairs(source_path, target_path)
    return pairs["source"][:], pairs["target"][:]
