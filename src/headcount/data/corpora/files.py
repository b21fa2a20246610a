"""Local corpora: for each split two text files, or tables."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from datasets import Dataset, concatenate_datasets

from headcount.data.corpora.corpus import SPLITS, fingerprint, language_codes, not_given, test_set_name
from headcount.data.corpora.held_out import HeldOut
from headcount.data.corpora.tables import FORMATS, Column, format_of, number_of_rows, read_table
from headcount.data.corpora.text import read_pairs
from headcount.errors import InputError
from headcount.settings import Positive

Columns = tuple[Column, Column]


class SplitFiles(NamedTuple):
    """The files of one split: two of text, source and target, or tables with a pair a row.

    columns: of tables, see `read_table`; None for two files of text.
    """

    paths: tuple[Path, ...]
    columns: Columns | None = None

    def read(self) -> Dataset:
        """The pairs. Raises InputError for a file that cannot be read."""
        if self.columns is None:
            return read_pairs(*self.paths)
        return concatenate_datasets([read_table(path, self.columns) for path in self.paths])


@dataclass(kw_only=True)
class FilesCorpus:
    """Parallel text in local files: for each split two files of text, a sentence a line, or tables, see `files_at`.

    conf/data/files.yaml explains the settings; see also `HeldOut`. Raises ValueError for a setting that is missing, or
    two that exclude each other.
    """

    source: str | None
    target: str | None
    train: Any
    valid: Any
    test: Any
    source_column: Column | None
    target_column: Column | None
    held_out: Mapping[str, Any] | None
    max_pairs: Positive | None
    tests: Mapping[str, Any] | None

    def __post_init__(self) -> None:
        if not self.source or not self.target:
            needs = "data=files needs both language codes, such as de"
            raise not_given(needs, source=self.source, target=self.target)
        self.source_language, self.target_language = language_codes(self.source, self.target)
        columns = (
            self.source if self.source_column is None else self.source_column,
            self.target if self.target_column is None else self.target_column,
        )
        if columns[0] == columns[1]:
            raise ValueError(f"source and target are both {columns[0]}: give two languages, or two columns")
        self.cut = HeldOut(self.held_out, self.max_pairs)
        places = {split: getattr(self, split) for split in SPLITS}
        for split, place in places.items():
            if bool(place) == (split in self.cut.sizes):
                raise ValueError(
                    f"data.{split}: give the text of the {split} split in one way: two files of text (data.{split}="
                    f"[FILE,FILE]), a table (data.{split}=FILE)"
                    + ("" if split == "train" else f", or a number of training pairs (data.held_out.{split}=2000)")
                )
        self.files = {split: files_at(f"data.{split}", place, columns) for split, place in places.items() if place}
        self.files |= test_files(self.tests, columns)

    def load(self) -> dict[str, Dataset]:
        return self.cut.cut({split: files.read() for split, files in self.files.items()})

    def fingerprint(self) -> str:
        further = {
            **self.cut.settings,
            "tests": [split for split in self.files if split not in SPLITS],
            "tables": {
                split: [format_of(files.paths[0]), *files.columns]
                for split, files in self.files.items()
                if files.columns is not None
            },
        }
        paths = [path for each in self.files.values() for path in each.paths]
        return fingerprint([self.source_language, self.target_language], further, paths)


def files_at(setting: str, place: Any, columns: Columns) -> SplitFiles:
    """The files of a split: [SOURCE, TARGET], two of text; a table, or a list of tables of one format. Raises
    ValueError for another value or another format."""
    paths = tuple(Path(str(path)) for path in (place if isinstance(place, list) else [place]))
    formats = {format_of(path) for path in paths}
    if len(paths) == 2 and not formats & set(FORMATS):
        return SplitFiles(paths)
    if len(formats) != 1 or not formats <= set(FORMATS):
        raise ValueError(
            f"{setting}={place}: must be two files of text, [SOURCE,TARGET], or tables that end in one of "
            f"{', '.join(FORMATS)}"
        )
    return SplitFiles(paths, columns)


def test_files(tests: Mapping[str, Any] | None, columns: Columns) -> dict[str, SplitFiles]:
    """The files of further test sets, by name. Raises ValueError, see `files_at` and `test_set_name`."""
    named = {test_set_name(str(name)): place for name, place in (tests or {}).items()}
    return {name: files_at(f"data.tests.{name}", place, columns) for name, place in named.items()}


def pairs_in(place: Any) -> int:
    """The pairs of a split of files, before any is dropped; 0 where they cannot be read, which `load` reports."""
    with contextlib.suppress(ValueError, InputError):
        files = files_at("data.train", place, ("", ""))
        return sum(map(number_of_rows, files.paths[: None if files.columns else 1]))
    return 0
