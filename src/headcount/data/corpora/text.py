"""Parallel text files: two files, a sentence a line."""

import contextlib
import gzip
import itertools
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from headcount.data.corpora.corpus import Pairs, pair_table
from headcount.errors import InputError, UnreachableError

LINES = 2**15  # read from a file at once
MARK = "\ufeff"  # byte order mark
PACKED = re.compile(  # the first bytes of a packed file, by what unpacks it
    rb"(?P<gunzip>\x1f\x8b)|(?P<unxz>\xfd7zXZ)|(?P<bunzip2>BZh\d)|(?P<unzstd>\x28\xb5\x2f\xfd)|(?P<unzip>PK\x03\x04)|"
    rb"(?P<p7zip>7z\xbc\xaf)|(?P<unrar>Rar!\x1a)|(?P<unlz4>\x04\x22\x4d\x18)|(?P<tar>.{257}ustar)",
    re.DOTALL,
)
NOT_UTF_8 = "not valid UTF-8; convert the text from its encoding, as with iconv -f LATIN1 -t UTF-8"


@dataclass(frozen=True)
class ParallelText:
    """Two files of which line n of one translates line n of the other."""

    source: Path
    target: Path

    @property
    def paths(self) -> list[Path]:
        return [self.source, self.target]

    def pairs(self) -> Pairs:
        """The pairs in chunks. Each file is read to its end first, so that errors in it are raised at once.

        Raises InputError for a file that cannot be read, or line counts that differ.
        """
        source, target = (sum(map(len, read_chunks(path))) for path in self.paths)
        _require_as_many(self.source, source, self.target, target)
        return Pairs(source, partial(_parallel_tables, self.source, self.target))


def read_chunks(path: str | Path, lines: int = LINES) -> Iterator[list[str]]:
    """A UTF-8 text file, plain or gzip (by its first bytes, not its name), in chunks of `lines` lines.

    Lines end at "\\n" only: `str.splitlines` would also cut at U+2028 and others that occur inside sentences, and
    so shift all later lines against the other language. A trailing "\\r" and the byte order marks at the beginning of
    a line are removed. Raises InputError for a file that is missing, unreadable, packed in another way or not UTF-8.
    """
    with _opened(path) as file:
        for number in itertools.count(0, lines):
            content = b"".join(itertools.islice(file, lines))
            if not content:
                return
            if not number and (why := no_text(content)):
                raise InputError(f"{path}, line 1: {why}")
            try:
                text = content.decode()
            except UnicodeDecodeError as error:
                line = number + error.object.count(b"\n", 0, error.start) + 1
                raise InputError(f"{path}, line {line}: {NOT_UTF_8}") from None
            chunk = text.split("\n")
            if not chunk[-1].lstrip(MARK):  # nothing follows the last line end
                chunk.pop()
            yield [line.lstrip(MARK).rstrip("\r") for line in chunk]


def no_text(content: bytes) -> str:
    """Why a file that begins so, with its first lines, is no text of one sentence a line, and what to do; else ""."""
    if packed := PACKED.match(content):
        return f"is packed; unpack it, as with {packed.lastgroup}"
    ends = content.count(b"\n")
    beside = content.count(b"\n\0") + content.endswith(b"\n"), content.count(b"\0\n")
    marked = content.startswith((b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff"))
    if marked or (content.count(0) * 50 > len(content) and ends in beside):
        return "is in UTF-16 or UTF-32; convert it, as with iconv -f UTF-16 -t UTF-8"
    if ends < 2 and content.rstrip(b"\r\n").count(b"\r") > ends:
        return "its lines end with carriage returns alone; convert them, as with tr '\\r' '\\n'"
    return ""


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[Iterable[bytes]]:
    try:
        with Path(path).open("rb") as file:
            packed = file.peek(2)[:2] == b"\x1f\x8b"
            yield gzip.GzipFile(fileobj=file) if packed else file
    except FileNotFoundError:
        raise UnreachableError(f"{path}: there is no such file; give the path of a text file, plain or .gz") from None
    except (OSError, EOFError, zlib.error) as error:
        kind = UnreachableError if isinstance(error, OSError) else InputError
        raise kind(f"{path}: cannot be read ({error}); give a text file, plain or .gz") from None


def read_lines(path: str | Path) -> list[str]:
    """All lines of a text file, see `read_chunks`."""
    return list(itertools.chain.from_iterable(read_chunks(path)))


def read_parallel(source_path: str | Path, target_path: str | Path) -> tuple[list[str], list[str]]:
    """Both sides of a parallel text: line n of one file translates line n of the other.

    Raises InputError for a file that cannot be read, or line counts that differ.
    """
    source, target = read_lines(source_path), read_lines(target_path)
    _require_as_many(source_path, len(source), target_path, len(target))
    return source, target


def _parallel_tables(source_path: Path, target_path: Path, rows: int) -> Iterator[pa.Table]:
    chunks = read_chunks(source_path, rows), read_chunks(target_path, rows)
    for source, target in itertools.zip_longest(*chunks, fillvalue=()):
        if len(source) != len(target):
            raise InputError(f"{source_path} or {target_path} changed while they were read; start again")
        yield pair_table(pa.array(source, pa.string()), pa.array(target, pa.string()))


def _require_as_many(source_path: str | Path, source: int, target_path: str | Path, target: int) -> None:
    if source != target:
        raise InputError(
            f"{source_path} has {source} lines and {target_path} has {target}; "
            "parallel files need the same number: line n of one is the translation of line n of the other"
        )
