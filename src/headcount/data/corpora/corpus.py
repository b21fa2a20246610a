"""The interface of a corpus: its splits as pairs of sentences, its languages, its fingerprint."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from headcount.data.corpora.digests import file_digest
from headcount.errors import InputError, UnreachableError, reason

SPLITS = ("train", "valid", "test")
LINE_END = "[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]"
# Keys at the top of metrics.json beside the blocks of the test sets.
OF_A_RUN = ("seed", "parameters", "operations_per_token", "model", "weights", "versions", "hardware", "config_hash")
RESERVED = (*SPLITS, *OF_A_RUN)


@dataclass(frozen=True)
class Pairs:
    """The pairs of a split, which may be larger than memory: each iteration reads them again.

    num_rows: the number of pairs; None if it is known only after reading. iter: tables in order, each of at most the
    given number of rows, as of `datasets.Dataset.iter`.
    """

    num_rows: int | None
    iter: Callable[[int], Iterator[pa.Table]]


class Corpus(Protocol):
    """Parallel text in one language pair."""

    source_language: str
    target_language: str

    def load(self) -> Mapping[str, Pairs | Dataset]:
        """The splits train, valid and test, and further test sets under other names; columns `source`, `target` and
        any others that the corpus has."""

    def fingerprint(self) -> str:
        """A hash of the text that `load` gives. Every process of every run calls it at its start."""


def language_codes(source: str, target: str) -> tuple[str, str]:
    """The codes of both languages, which are parts of file names. Raises InputError for a code that is not allowed."""
    for name, code in {"source": source, "target": target}.items():
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,35}", code):
            raise InputError(
                f"data.{name}={code}: must be the code of a language, of letters, digits, _ and -, such as de or pt-BR"
            )
    return source, target


def test_set_name(name: str) -> str:
    """The name of a further test set, a part of file names. Raises InputError for a name that is not allowed."""
    if name in RESERVED or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}", name):
        raise InputError(
            f"data.tests.{name}: cannot be the name of a test set; give letters, digits, _ and -, such as test2017, "
            f"and none of {', '.join(RESERVED)}"
        )
    return name


def further_names(splits: Iterable[str]) -> list[str]:
    """The further test sets among the splits of a corpus. Raises InputError for a name that is not allowed."""
    return [test_set_name(split) for split in splits if split not in SPLITS]


def pair_table(source: pa.Array | pa.ChunkedArray, target: pa.Array | pa.ChunkedArray) -> pa.Table:
    """A table of text, each `one_line`."""
    return pa.table({"source": one_line(source), "target": one_line(target)})


def one_line(texts: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Strings without line ends, since files have a sentence a line: null becomes the empty text, and all characters
    at which `str.splitlines` cuts become spaces."""
    return pc.replace_substring_regex(pc.fill_null(texts.cast(pa.string()), ""), LINE_END, " ")


def fingerprint(settings: list[Any], further: Mapping[str, Any], files: list[Path]) -> str:
    """A hash of settings, of the content of files, and of the settings in `further` that are not empty (so a setting
    that is added later changes no fingerprint). Raises InputError for a file that cannot be read."""
    given = {name: value for name, value in further.items() if value}
    digest = hashlib.sha256(json.dumps([*settings, given] if given else settings).encode())
    for path in files:
        try:
            digest.update(file_digest(path))
        except OSError as error:
            raise UnreachableError(
                f"{path}: cannot be read ({reason(error)}); give a text file, plain or .gz"
            ) from None
    return digest.hexdigest()
