"""Local corpora: for each split two text files, or tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset, concatenate_datasets

from headcount.data.corpora.corpus import SPLITS, fingerprint, language_codes, test_set_name
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


class FilesCorpus:
    """Parallel text in local files: for each split two files, plain or gzip, one sentence a line, or tables.

    conf/data/files.yaml explains the settings; see also `HeldOut`. Raises ValueError for a setting that is missing, or
    two that exclude each other.
    """

    def __init__(
        self,
        *,
        source: str | None,
        target: str | None,
        train_source: str | Path | None,
        train_target: str | Path | None,
        valid_source: str | Path | None,
        valid_target: str | Path | None,
        test_source: str | Path | None,
        test_target: str | Path | None,
        train: Place | None,
        valid: Place | None,
        test: Place | None,
        source_column: Column | None,
        target_column: Column | None,
        held_out: Mapping[str, int | None] | None,
        max_pairs: int | None,
        tests: Mapping[str, Any] | None,
    ) -> None:
        cut = HeldOut(held_out, max_pairs)
        tables = {"train": train, "valid": valid, "test": test}
        sides = {
            "train": {"source": train_source, "target": train_target},
            "valid": {"source": valid_source, "target": valid_target},
            "test": {"source": test_source, "target": test_target},
        }
        check_places({"source": source, "target": target}, tables, sides, cut)
        if (source_column, target_column) != (None, None) and not any(tables.values()):
            raise ValueError(
                "data.source_column and data.target_column: no split is a table; leave them out, or give "
                "data.train=train.tsv"
            )
        self.source_language, self.target_language = language_codes(str(source), str(target))
        columns = (
            self.source_language if source_column is None else source_column,
            self.target_language if target_column is None else target_column,
        )
        where = {split: tables[split] or sides[split] for split in SPLITS if split not in cut.sizes}
        files = {split: files_at(f"data.{split}", place, columns) for split, place in where.items()}
        files |= {name: files_at(f"data.tests.{name}", place, columns) for name, place in named_tests(tests).items()}
        self.splits = LocalSplits((self.source_language, self.target_language), files, cut)

    def load(self) -> dict[str, Dataset]:
        return self.splits.load()

    def fingerprint(self) -> str:
        return self.splits.fingerprint()


def check_places(
    languages: Mapping[str, str | None],
    tables: Mapping[str, Place | None],
    sides: Mapping[str, Mapping[str, str | Path | None]],
    held_out: HeldOut,
) -> None:
    """Raises ValueError for a split that is given twice, or for missing settings."""
    missing = [f"data.{setting}" for setting, code in languages.items() if not code]
    for split, table in tables.items():
        ways = {
            f"data.{split}": table,
            f"data.{split}_source": sides[split]["source"] or sides[split]["target"],
            f"data.held_out.{split}": held_out.sizes.get(split),
        }
        given = [setting for setting, value in ways.items() if value]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)}: both give the text of the {split} split; give one of them")
        if not table and not held_out.sizes.get(split):
            missing += [f"data.{split}_{side}" for side, path in sides[split].items() if not path]
    if missing:
        raise ValueError(
            f"{', '.join(missing)}: not given; data=files needs both language codes, and for each split two files "
            "(data.train_source=train.de data.train_target=train.en), or a table (data.train=train.tsv), or for "
            "valid and test a number of training pairs (data.held_out.test=2000)"
        )


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
