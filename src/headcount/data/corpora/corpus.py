"""The interface of a corpus: its splits as pairs of sentences, its languages, its fingerprint."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from headcount.errors import InputError, reason
from headcount.files import require_regular

SPLITS = ("train", "valid", "test")
SIDES = ("source", "target")
LINE_END = "[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]"


class Corpus(Protocol):
    """Parallel text in one language pair."""

    source_language: str
    target_language: str

    def load(self) -> Mapping[str, Dataset]:
        """The splits train, valid and test, and further test sets under other names; columns `source`, `target` and
        any others that the corpus has."""

    def fingerprint(self) -> str:
        """A hash of the text that `load` gives. Every process of every run calls it at its start."""


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
    """Two columns of text, as of a `pa.Table`, as a split."""
    return in_memory(pa.table({"source": source, "target": target}))


def in_memory(table: pa.Table) -> Dataset:
    """A table as a split; the name saves `datasets` a hash of all of it."""
    return Dataset(table, fingerprint="table")


def one_line(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Strings without line ends, since files have a sentence a line: null becomes the empty text, and all characters
    at which `str.splitlines` cuts become spaces."""
    return pc.replace_substring_regex(pc.fill_null(texts.cast(pa.string()), ""), LINE_END, " ")


def fingerprint(settings: list[Any], further: Mapping[str, Any], files: Iterable[Path]) -> str:
    """A hash of settings, of the content of files, and of the settings in `further` that are not empty (so a setting
    that is added later changes no fingerprint). Raises InputError for a file that cannot be read."""
    given = {name: value for name, value in further.items() if value}
    digest = hashlib.sha256(json.dumps([*settings, given] if given else settings).encode())
    for path in files:
        try:
            require_regular(path)
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({reason(error)}); give a text file, plain or .gz") from None
    return digest.hexdigest()
