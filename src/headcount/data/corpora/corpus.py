"""The interface of a corpus: its splits as pairs of sentences, its languages, its fingerprint."""

import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from datasets import Dataset

from headcount.errors import InputError, printable, reason
from headcount.files import require_regular

SPLITS = ("train", "valid", "test")
SIDES = ("source", "target")


class Corpus(Protocol):
    """Parallel text in one language pair."""

    source_language: str
    target_language: str

    def load(self) -> Mapping[str, Dataset]:
        """The splits train, valid and test, and further test sets under other names; columns `source`, `target` and
        any others that the corpus has."""

    def fingerprint(self) -> str:
        """A hash of the text that `load` gives. Every process of every run calls it at its start."""


def not_given(needs: str, **settings: object) -> ValueError:
    """The error that names those of the settings of `data` without a value, and says what is needed."""
    absent = ", ".join(f"data.{name}" for name, value in settings.items() if not value)
    return ValueError(f"{absent}: not given; {needs}")


def language_codes(source: str, target: str, differ: bool = False) -> tuple[str, str]:
    """The codes of both languages, which are parts of file names. Raises InputError for a code that is not allowed, and
    with `differ` for one language twice."""
    if differ and source == target:
        raise InputError(f"data.source={source} and data.target={target} are the same language; give two")
    for name, code in {"source": source, "target": target}.items():
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,35}", code):
            raise InputError(
                f"data.{name}={code}: must be the code of a language, of letters, digits, _ and -, such as de or pt-BR"
            )
    return source, target


def test_set_name(name: str) -> str:
    """The name of a further test set, a part of file names. Raises InputError for a name that is not allowed."""
    if name in SPLITS or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}", name):
        raise InputError(
            f"data.tests.{name}: cannot be the name of a test set; give letters, digits, _ and -, such as test2017, "
            f"and none of {', '.join(SPLITS)}"
        )
    return name


def further_names(splits: Iterable[str]) -> list[str]:
    """The further test sets among the splits of a corpus. Raises InputError for a name that is not allowed."""
    return [test_set_name(split) for split in splits if split not in SPLITS]


def pairs_of(source: Any, target: Any) -> Dataset:
    """Two columns of text, as of a `pa.Table`, as a split; the name saves `datasets` a hash of all of it."""
    return Dataset(pa.table({"source": source, "target": target}), fingerprint="table")


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Raises InputError for a file that cannot be read in the block."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; give a text file, plain or .gz, or a table") from None
    except (OSError, EOFError, zlib.error, pa.ArrowException, UnicodeError) as error:
        why = printable(reason(error))
        raise InputError(f"{path}: cannot be read ({why}); give a text file, plain or .gz, or a whole table") from None


def fingerprint(settings: list[Any], further: Mapping[str, Any], files: Iterable[Path]) -> str:
    """A hash of settings, of the content of files, and of the settings in `further` that are not empty (so a setting
    that is added later changes no fingerprint). Raises InputError for a file that cannot be read."""
    given = {name: value for name, value in further.items() if value}
    digest = hashlib.sha256(json.dumps([*settings, given] if given else settings).encode())
    for path in files:
        with reading(path):
            require_regular(path)
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
