"""Local corpora: two text files a split, or one table."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.data.corpora.corpus import SPLITS, Pairs, fingerprint, language_codes, test_set_name
from headcount.data.corpora.held_out import HeldOut
from headcount.data.corpora.tables import FORMATS, Column, TableFile
from headcount.data.corpora.text import ParallelText
from headcount.errors import InputError


@dataclass(frozen=True)
class SplitTexts:
    """The files of every split, and the splits that are held out of train."""

    languages: tuple[str, str]
    texts: Mapping[str, ParallelText | TableFile]
    held_out: HeldOut

    def load(self) -> dict[str, Pairs]:
        """The splits. Raises InputError for a file that cannot be read, or that holds no pair."""
        splits = {split: text.pairs() for split, text in self.texts.items()}
        for split, pairs in splits.items():
            if pairs.num_rows == 0:
                raise InputError(f"{self.texts[split].paths[0]}: holds no pairs; the {split} split needs at least one")
        return self.held_out.cut(splits)

    def fingerprint(self) -> str:
        tables = {split: text for split, text in self.texts.items() if isinstance(text, TableFile)}
        further = {
            **self.held_out.settings,
            "tests": [split for split in self.texts if split not in SPLITS],
            "tables": {split: [table.format, table.source, table.target] for split, table in tables.items()},
        }
        return fingerprint(list(self.languages), further, [path for text in self.texts.values() for path in text.paths])


class FilesCorpus:
    """Parallel text in local files: for each split two files, plain or gzip, one sentence a line, or one table.

    conf/data/files.yaml explains the settings; see also `TableFile` and `HeldOut`. Raises ValueError for a setting that
    is missing, or two that exclude each other.
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
        train: str | Path | None,
        valid: str | Path | None,
        test: str | Path | None,
        source_column: str | int | None,
        target_column: str | int | None,
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
        texts = {split: text_at(f"data.{split}", place, columns) for split, place in where.items()}
        texts |= {name: text_at(f"data.tests.{name}", place, columns) for name, place in named_tests(tests).items()}
        self.texts = SplitTexts((self.source_language, self.target_language), texts, cut)

    def load(self) -> dict[str, Pairs]:
        return self.texts.load()

    def fingerprint(self) -> str:
        return self.texts.fingerprint()


def check_places(
    languages: Mapping[str, str | None],
    tables: Mapping[str, str | Path | None],
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
            "(data.train_source=train.de data.train_target=train.en), or one table (data.train=train.tsv), or for "
            "valid and test a number of training pairs (data.held_out.test=2000)"
        )


def text_at(setting: str, where: Any, columns: tuple[Column, Column]) -> ParallelText | TableFile:
    """Two files `{source: PATH, target: PATH}`, or one table. Raises ValueError for another value or another format."""
    if isinstance(where, Mapping) and set(where) == {"source", "target"} and all(where.values()):
        return ParallelText(Path(str(where["source"])), Path(str(where["target"])))
    if isinstance(where, str | Path):
        table = TableFile(Path(where), *columns)
        if table.format not in FORMATS:
            raise ValueError(
                f"{setting}={where}: a file with both sides must end in .tsv, .csv, .jsonl (each plain or .gz) or "
                ".parquet; rename it, or give two files, a sentence a line, as with data.train_source= and "
                "data.train_target="
            )
        return table
    raise ValueError(f"{setting}={where}: must be two files, {{source: PATH, target: PATH}}, or one name")


def named_tests(tests: Mapping[str, Any] | None) -> dict[str, Any]:
    """The places of further test sets, by name. Raises ValueError for a name that is not allowed."""
    return {test_set_name(str(name)): where for name, where in (tests or {}).items()}
