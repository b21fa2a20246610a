"""Pairs of sentences as every corpus gives them."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from headcount.data.corpora.digests import file_digest
from headcount.errors import InputError

SPLITS = ("train", "valid", "test")
LINE_END = "[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]"


@dataclass(frozen=True)
class Pairs:
    """The pairs of a split, read anew whenever somebody goes through them, since they may be more than memory holds.

    Args:
        num_rows: how many there are; None where only reading tells.
        iter: gives them in order as tables of the number of rows asked for, or of fewer, as `datasets.Dataset.iter`
            does.
    """

    num_rows: int | None
    iter: Callable[[int], Iterator[pa.Table]]


class Corpus(Protocol):
    """Parallel text in one language pair."""

    source_language: str
    target_language: str

    def load(self) -> Mapping[str, Pairs | Dataset]:
        """Splits train, valid, test, and under any other name further test sets; columns `source`, `target` and
        whatever else the corpus knows of a pair."""
        ...

    def fingerprint(self) -> str:
        """Changes whenever `load` would give something else. It is asked for at every start and in every process."""
        ...


def pair_table(source: pa.Array | pa.ChunkedArray, target: pa.Array | pa.ChunkedArray) -> pa.Table:
    """A table of text, each `one_line`."""
    return pa.table({"source": one_line(source), "target": one_line(target)})


def one_line(texts: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Strings without line ends: nothing (null) is the empty text, and whatever `str.splitlines` cuts at is a space,
    since one sentence is one line in every file written later."""
    return pc.replace_substring_regex(pc.fill_null(texts.cast(pa.string()), ""), LINE_END, " ")


def fingerprint(settings: list[Any], further: Mapping[str, Any], files: list[Path]) -> str:
    """A hash of settings and of what is in files; of the settings in `further`, those that say something (so that a new
    setting, left alone, changes nothing). Raises InputError where a file cannot be read."""
    said = {name: value for name, value in further.items() if value}
    digest = hashlib.sha256(json.dumps([*settings, said] if said else settings).encode())
    for path in files:
        try:
            digest.update(file_digest(path))
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}); give a text file, plain or .gz") from None
    return digest.hexdigest()
