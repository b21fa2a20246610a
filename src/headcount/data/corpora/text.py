"""Parallel text files: two files, a sentence a line."""

import gzip
import itertools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from datasets import Dataset

from headcount.data.corpora.corpus import pairs_of, reading
from headcount.errors import InputError

LINES = 2**15  # that become an array at once
MARK = "\ufeff"  # byte order mark
NOT_UTF_8 = (
    "not valid UTF-8; unpack a packed file, or convert the text from its encoding, as with iconv -f UTF-16 -t UTF-8"
)


def iterate_lines(path: str | Path) -> Iterator[str]:
    """The lines of a UTF-8 text file, plain or gzip (by its first bytes, not its name).

    Lines end at "\\n" only: `str.splitlines` would also cut at U+2028 and others that occur inside sentences, and
    so shift all later lines against the other language. A trailing "\\r" and the byte order marks at the beginning of
    a line are removed. Raises InputError for a file that is missing, unreadable or not UTF-8.
    """
    with reading(path), Path(path).open("rb") as file:
        packed = file.peek(2)[:2] == b"\x1f\x8b"
        for number, line in enumerate(gzip.GzipFile(fileobj=file) if packed else file, start=1):
            try:
                text = decoded(line).lstrip(MARK)
            except UnicodeDecodeError:
                raise InputError(f"{path}, line {number}: {NOT_UTF_8}") from None
            if text:  # else a mark follows the last line end
                yield text.rstrip("\r\n")


def decoded(content: bytes) -> str:
    """Text in UTF-8. Raises UnicodeDecodeError, also for a zero byte, as UTF-16 and most packed files have it."""
    if b"\0" in content:
        raise UnicodeDecodeError("utf-8", content, content.index(b"\0"), len(content), "zero byte")
    return content.decode()


def read_lines(path: str | Path) -> list[str]:
    """All lines of a text file, see `iterate_lines`."""
    return list(iterate_lines(path))


def read_pairs(source_path: str | Path, target_path: str | Path) -> Dataset:
    """Both sides of a parallel text: line n of one file translates line n of the other.

    Raises InputError for a file that cannot be read, or line counts that differ.
    """
    source, target = map(_column, (source_path, target_path))
    if len(source) != len(target):
        raise InputError(
            f"{source_path} has {len(source)} lines and {target_path} has {len(target)}; "
            "parallel files need the same number: line n of one is the translation of line n of the other"
        )
    return pairs_of(source, target)


def _column(path: str | Path) -> pa.ChunkedArray:
    lines = iterate_lines(path)
    chunks = iter(lambda: list(itertools.islice(lines, LINES)), [])
    return pa.chunked_array([pa.array(chunk, pa.string()) for chunk in chunks], pa.string())


def read_parallel(source_path: str | Path, target_path: str | Path) -> tuple[list[str], list[str]]:
    """Both sides of a parallel text as lists, see `read_pairs`."""
    pairs = read_pairs(source_path, target_path)
    return pairs["source"][:], pairs["target"][:]
