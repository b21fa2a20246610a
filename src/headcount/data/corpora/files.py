"""Parallel text of your own: two files a split, or one table."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.data.corpora.corpus import SPLITS, Pairs, fingerprint, language_codes, test_set_name
from headcount.data.corpora.held_out import HeldOut, first
from headcount.data.corpora.tables import FORMATS, Column, Table
from headcount.data.corpora.text import ParallelText
from headcount.errors import InputError


@dataclass(frozen=True)
class SplitTexts:
    """The text of every split in files of its own, with what is held out and how much is taken of train."""

    languages: tuple[str, str]
    texts: Mapping[str, ParallelText | Table]
    held_out: HeldOut
    max_pairs: int | None

    def load(self) -> dict[str, Pairs]:
        """The splits. Raises InputError for a file that cannot be read, or holds nothing."""
        splits = {split: text.pairs() for split, text in self.texts.items()}
        for split, pairs in splits.items():
            if pairs.num_rows == 0:
                raise InputError(f"{self.texts[split].paths[0]}: holds no pairs; the {split} split needs at least one")
        return self.held_out.cut(splits | {"train": first(splits["train"], self.max_pairs)})

    def fingerprint(self) -> str:
        tables = {split: text for split, text in self.texts.items() if isinstance(text, Table)}
        further = {
            "held_out": self.held_out.settings,
            "max_pairs": self.max_pairs,
            "tests": [split for split in self.texts if split not in SPLITS],
            "tables": {split: [table.format, table.source, table.target] for split, table in tables.items()},
        }
        return fingerprint(list(self.languages), further, [path for text in self.texts.values() for path in text.paths])


class FilesCorpus:
    """Parallel text of your own: for each split two files, plain or gzip, one sentence a line, or one table.

    Args:
        source: code of the source language.
        target: the same of the target language.
        train_source, train_target, valid_source, valid_target, test_source, test_target: two files a split.
        train, valid, test: instead of two files, one with both sides, see `Table`.
        source_column: its column of the source: name, or number where there is no header; None for the language code.
        target_column: the same for the target.
        held_out: how many pairs of train to take for a split that there is no file of, see `HeldOut`.
        max_pairs: take no more than so many pairs of train, the first, before any are held out; None for all.
        tests: further test sets by name: `{source: PATH, target: PATH}`, or the path of a table.

    Raises:
        ValueError: a setting is missing, or two don't go together.
    """

    def __init__(
        self,
        source: str | None,
        target: str | None,
        train_source: str | Path | None = None,
        train_target: str | Path | None = None,
        valid_source: str | Path | None = None,
        valid_target: str | Path | None = None,
        test_source: str | Path | None = None,
        test_target: str | Path | None = None,
        train: str | Path | None = None,
        valid: str | Path | None = None,
        test: str | Path | None = None,
        source_column: str | int | None = None,
        target_column: str | int | None = None,
        held_out: Mapping[str, int | None] | None = None,
        max_pairs: int | None = None,
        tests: Mapping[str, Any] | None = None,
    ) -> None:
        cut = HeldOut(held_out)
        tables = {"train": train, "valid": valid, "test": test}
        sides = {
            "train": {"source": train_source, "target": train_target},
            "valid": {"source": valid_source, "target": valid_target},
            "test": {"source": test_source, "target": test_target},
        }
        missing = [f"data.{setting}" for setting, value in {"source": source, "target": target}.items() if not value]
        for split, table in tables.items():
            ways = {
                f"data.{split}": table,
                f"data.{split}_source": sides[split]["source"] or sides[split]["target"],
                f"data.held_out.{split}": cut.sizes.get(split),
            }
            given = [setting for setting, value in ways.items() if value]
            if len(given) > 1:
                raise ValueError(
                    f"{' and '.join(given)}: both say where the {split} split comes from; give one of them"
                )
            if not table and not cut.sizes.get(split):
                missing += [f"data.{split}_{side}" for side, path in sides[split].items() if not path]
        if missing:
            raise ValueError(
                f"{', '.join(missing)}: not given; data=files needs both language codes, and for each split two files "
                "(data.train_source=train.de data.train_target=train.en), or one table (data.train=train.tsv), or for "
                "valid and test a number of training pairs (data.held_out.test=2000)"
            )
        if (source_column, target_column) != (None, None) and not any(tables.values()):
            raise ValueError(
                "data.source_column and data.target_column: of a table, and no split is one; leave them out, or give "
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
        self.texts = SplitTexts((self.source_language, self.target_language), texts, cut, at_least_one(max_pairs))

    def load(self) -> dict[str, Pairs]:
        return self.texts.load()

    def fingerprint(self) -> str:
        return self.texts.fingerprint()


def text_at(setting: str, where: Any, columns: tuple[Column, Column]) -> ParallelText | Table:
    """Two files `{source: PATH, target: PATH}`, or one table.

    Raises:
        ValueError: `where` is neither, or a table of another format.
    """
    if isinstance(where, Mapping) and set(where) == {"source", "target"} and all(where.values()):
        return ParallelText(Path(str(where["source"])), Path(str(where["target"])))
    if isinstance(where, str | Path):
        table = Table(Path(where), *columns)
        if table.format not in FORMATS:
            raise ValueError(
                f"{setting}={where}: a file with both sides must end in .tsv, .csv, .jsonl (each plain or .gz) or "
                ".parquet; rename it, or give two files, a sentence a line, as with data.train_source= and "
                "data.train_target="
            )
        return table
    raise ValueError(f"{setting}={where}: must be two files, {{source: PATH, target: PATH}}, or one name")


def named_tests(tests: Mapping[str, Any] | None) -> dict[str, Any]:
    """Where further test sets come from, by name. Raises ValueError for names that cannot be."""
    return {test_set_name(str(name)): where for name, where in (tests or {}).items()}


def at_least_one(max_pairs: int | None) -> int | None:
    """`data.max_pairs` as it is. Raises ValueError where nothing would be left."""
    if max_pairs is not None and max_pairs < 1:
        raise ValueError(f"data.max_pairs={max_pairs} would leave nothing of train; give 1 or more, or null for all")
    return max_pairs
