"""Local corpora: for each split two text files, or tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge
from datasets import Dataset, concatenate_datasets

from headcount.data.corpora.corpus import SIDES, SPLITS, fingerprint, language_codes, test_set_name
from headcount.data.corpora.held_out import HeldOut
from headcount.data.corpora.tables import FORMATS, Column, format_of, read_table
from headcount.data.corpora.text import read_pairs
from headcount.errors import InputError

Place = str | Path | list[str]


@dataclass(frozen=True)
class SplitFiles:
    """The files of one split: two of text, or tables with a pair a row.

    columns: of tables, see `read_table`; None for two files of text.
    """

    paths: tuple[Path, ...]
    columns: tuple[Column, Column] | None = None

    def read(self) -> Dataset:
        """The pairs. Raises InputError for a file that cannot be read, or that holds none."""
        columns = self.columns
        parts = [read_pairs(*self.paths)] if columns is None else [read_table(path, columns) for path in self.paths]
        for path, part in zip(self.paths, parts, strict=False):
            if not len(part):
                raise InputError(f"{path}: holds no pairs; a split needs at least one")
        return concatenate_datasets(parts)

    @property
    def settings(self) -> list[Any]:
        """For a fingerprint, beside the content of the files; empty for two files of text."""
        return [] if self.columns is None else [format_of(self.paths[0]), *self.columns]


@dataclass(frozen=True)
class LocalSplits:
    """The files of every split, and the splits that are held out of train."""

    languages: tuple[str, str]
    files: Mapping[str, SplitFiles]
    held_out: HeldOut

    def load(self) -> dict[str, Dataset]:
        return self.held_out.cut({split: files.read() for split, files in self.files.items()})

    def fingerprint(self) -> str:
        further = {
            **self.held_out.settings,
            "tests": [split for split in self.files if split not in SPLITS],
            "tables": {split: files.settings for split, files in self.files.items() if files.settings},
        }
        return fingerprint(list(self.languages), further, [path for each in self.files.values() for path in each.paths])


@dataclass(kw_only=True)
class FilesCorpus:
    """Parallel text in local files: for each split two files, plain or gzip, one sentence a line, or tables.

    conf/data/files.yaml explains the settings; see also `HeldOut`. Raises ValueError for a setting that is missing, or
    two that exclude each other.
    """

    source: str | None
    target: str | None
    train_source: str | Path | None
    train_target: str | Path | None
    valid_source: str | Path | None
    valid_target: str | Path | None
    test_source: str | Path | None
    test_target: str | Path | None
    train: Place | None
    valid: Place | None
    test: Place | None
    source_column: Column | None
    target_column: Column | None
    held_out: Mapping[str, int | None] | None
    max_pairs: Annotated[int, Ge(1)] | None
    tests: Mapping[str, Any] | None

    def __post_init__(self) -> None:
        if not self.source or not self.target:
            raise ValueError("data.source, data.target: not given; data=files needs both language codes, such as de")
        one_column = self.source_column == self.target_column
        self.source_language, self.target_language = language_codes(self.source, self.target, differ=one_column)
        columns = (
            self.source if self.source_column is None else self.source_column,
            self.target if self.target_column is None else self.target_column,
        )
        cut, files = HeldOut(self.held_out, self.max_pairs), {}
        for split in SPLITS:
            table, sides = getattr(self, split), {side: getattr(self, f"{split}_{side}") for side in SIDES}
            given = [bool(table), any(sides.values()), split in cut.sizes]
            if sum(given) != 1 or (given[1] and not all(sides.values())):
                raise ValueError(
                    f"data.{split}: give the text of the {split} split in one way: two files (data.{split}_source= and "
                    f"data.{split}_target=), or a table (data.{split}=FILE)"
                    + ("" if split == "train" else f", or a number of training pairs (data.held_out.{split}=2000)")
                )
            if not given[2]:
                files[split] = files_at(f"data.{split}", table or sides, columns)
        files |= {
            name: files_at(f"data.tests.{name}", where, columns) for name, where in named_tests(self.tests).items()
        }
        self.splits = LocalSplits((self.source_language, self.target_language), files, cut)

    def load(self) -> dict[str, Dataset]:
        return self.splits.load()

    def fingerprint(self) -> str:
        return self.splits.fingerprint()


def files_at(setting: str, where: Any, columns: tuple[Column, Column]) -> SplitFiles:
    """Two files `{source: PATH, target: PATH}`, a table, or a list of tables. Raises ValueError for another value or
    another format."""
    if isinstance(where, Mapping) and set(where) == {"source", "target"} and all(where.values()):
        return SplitFiles((Path(str(where["source"])), Path(str(where["target"]))))
    paths = tuple(Path(str(path)) for path in (where if isinstance(where, list) else [where]))
    formats = {format_of(path) for path in paths}
    if isinstance(where, Mapping | int) or len(formats) != 1 or not formats <= set(FORMATS):
        raise ValueError(
            f"{setting}={where}: must be two files of text, as with data.train_source= and data.train_target= or "
            f"{{source: PATH, target: PATH}}, or tables that end in one of {', '.join(FORMATS)}"
        )
    numbers = [column for column in columns if isinstance(column, int)]
    if numbers and (len(numbers) == 1 or min(numbers) < 1 or not formats <= {".tsv", ".csv"}):
        raise ValueError(
            f"data.source_column={columns[0]} and data.target_column={columns[1]} do not fit {where}: give the names "
            "of two columns, or for a .tsv or .csv file without a header their numbers, from 1"
        )
    return SplitFiles(paths, columns)


def named_tests(tests: Mapping[str, Any] | None) -> dict[str, Any]:
    """The places of further test sets, by name. Raises ValueError for a name that is not allowed."""
    return {test_set_name(str(name)): where for name, where in (tests or {}).items()}
