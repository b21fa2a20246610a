"""Pairs of sentences as every corpus gives them."""

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
from headcount.errors import InputError

SPLITS = ("train", "valid", "test")
LINE_END = "[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]"
# What metrics.json, where every test set has a block, holds at its top besides.
OF_A_RUN = ("seed", "parameters", "operations_per_token", "model", "weights", "versions", "hardware", "config_hash")
RESERVED = (*SPLITS, *OF_A_RUN)


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


def language_codes(source: str, target: str) -> tuple[str, str]:
    """The codes of both languages, which are parts of file names. Raises InputError for what is no code."""
    for name, code in {"source": source, "target": target}.items():
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,35}", code):
            raise InputError(
                f"data.{name}={code}: must be the code of a language, of letters, digits, _ and -, such as de or pt-BR"
            )
    return source, target


def test_set_name(name: str) -> str:
    """The name of a further test set, which is a part of file names. Raises InputError where it cannot be one."""
    if name in RESERVED or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}", name):
        raise InputError(
            f"data.tests.{name}: cannot be the name of a test set; give letters, digits, _ and -, such as test2017, "
            f"and none of {', '.join(RESERVED)}"
        )
    return name


def further_names(splits: Iterable[str]) -> list[str]:
    """The test sets among the splits of a corpus beyond `SPLITS`. Raises InputError for one with an impossible name."""
    return [test_set_name(split) for split in splits if split not in SPLITS]


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
