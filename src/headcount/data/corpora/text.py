"""Parallel text files: two files, a sentence a line."""

import contextlib
import gzip
import itertools
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from datasets import Dataset

from headcount.data.corpora.corpus import pairs_of
from headcount.errors import InputError

LINES = 2**15  # read from a file at once
MARK = "\ufeff"  # byte order mark
PACKED = re.compile(  # the first bytes of a packed file, by what unpacks it
    rb"(?P<gunzip>\x1f\x8b)|(?P<unxz>\xfd7zXZ)|(?P<bunzip2>BZh\d)|(?P<unzstd>\x28\xb5\x2f\xfd)|(?P<unzip>PK\x03\x04)|"
    rb"(?P<p7zip>7z\xbc\xaf)|(?P<unrar>Rar!\x1a)|(?P<unlz4>\x04\x22\x4d\x18)|(?P<tar>.{257}ustar)",
    re.DOTALL,
)
NOT_UTF_8 = "not valid UTF-8; convert the text from its encoding, as with iconv -f LATIN1 -t UTF-8"


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
        raise InputError(f"{path}: there is no such file; give the path of a text file, plain or .gz") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error}); give a text file, plain or .gz") from None


def read_lines(path: str | Path) -> list[str]:
    """All lines of a text file, see `read_chunks`."""
    return list(itertools.chain.from_iterable(read_chunks(path)))


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
