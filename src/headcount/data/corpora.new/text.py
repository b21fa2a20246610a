"""Where parallel text comes from: the Hugging Face hub, a folder, or files of your own.

Every corpus gives the same thing: the splits train, valid and test, each to be gone through some rows at a time, with
the text columns `source` and `target`. Nothing is cleaned here.
"""

import contextlib
import gzip
import hashlib
import itertools
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import datasets
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, DatasetDict
from huggingface_hub import HfApi

from headcount.errors import InputError

SPLITS = ("train", "valid", "test")
HUB_TIMEOUT = 10.0  # seconds for the one question whether the hub answers
LINES = 2**15  # read from a file at once


@dataclass(frozen=True)
class Pairs:
    """The pairs of a split, read anew whenever somebody goes through them, since they may be more than memory holds.

    Args:
        num_rows: how many there are.
        iter: gives them in order as tables of the number of rows asked for (the last one of what is left), as
            `datasets.Dataset.iter` does.
    """

    num_rows: int
    iter: Callable[[int], Iterator[pa.Table]]


class Corpus(Protocol):
    """Parallel text in one language pair."""

    source_language: str
    target_language: str

    def load(self) -> Mapping[str, Pairs | Dataset]:
        """Splits train, valid, test; columns `source`, `target` and whatever else the corpus knows of a pair."""
        ...

    def fingerprint(self) -> str:
        """Changes whenever `load` would give something else; cheap enough to ask at every start."""
        ...


def read_chunks(path: str | Path, lines: int = LINES) -> Iterator[list[str]]:
    """So many lines at a time of a UTF-8 text file, plain or gzip (told by its first bytes, not by its name).

    Lines end at "\\n" only: `str.splitlines` would also cut at U+2028 and others that stand inside sentences, and
    shift every line after them against the other language. A trailing "\\r" and a leading byte order mark go.

    Raises:
        InputError: the file is missing, unreadable or not UTF-8.
    """
    with _opened(path) as file:
        for number in itertools.count(0, lines):
            content = b"".join(itertools.islice(file, lines))
            if not content:
                return
            try:
                text = content.decode("utf-8" if number else "utf-8-sig")
            except UnicodeDecodeError as error:
                line = number + error.object.count(b"\n", 0, error.start) + 1
                raise InputError(
                    f"{path}, line {line}: not valid UTF-8; convert the file, as with iconv -t UTF-8"
                ) from None
            chunk = text.split("\n")
            if not chunk[-1]:  # what follows the last line end is no line
                chunk.pop()
            yield [line.rstrip("\r") for line in chunk]


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[Iterable[bytes]]:
    try:
        with Path(path).open("rb") as file:
            packed = file.peek(2)[:2] == b"\x1f\x8b"
            yield gzip.GzipFile(fileobj=file) if packed else file
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; give the path of a text file, plain or .gz") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error}); give a text file, plain or .gz") from None


def read_lines(path: str | Path) -> list[str]:
    """All lines of a text file, see `read_chunks`."""
    return list(itertools.chain.from_iterable(read_chunks(path)))


def read_parallel(source_path: str | Path, target_path: str | Path) -> tuple[list[str], list[str]]:
    """Both sides of a parallel text: line n of one file translates line n of the other.

    Raises:
        InputError: a file cannot be read, or the line counts differ.
    """
    source, target = read_lines(source_path), read_lines(target_path)
    _require_as_many(source_path, len(source), target_path, len(target))
    return source, target


def stream_parallel(source_path: Path, target_path: Path) -> Pairs:
    """The same, a part at a time. Each file is read to its end first, so that what is wrong with it is said at once.

    Raises:
        InputError: a file cannot be read, or the line counts differ.
    """
    source, target = (sum(map(len, read_chunks(path))) for path in (source_path, target_path))
    _require_as_many(source_path, source, target_path, target)
    return Pairs(source, partial(_parallel_tables, source_path, target_path))


def _parallel_tables(source_path: Path, target_path: Path, rows: int) -> Iterator[pa.Table]:
    for source, target in zip(read_chunks(source_path, rows), read_chunks(target_path, rows), strict=True):
        yield _table(pa.array(source, pa.string()), pa.array(target, pa.string()))


def _require_as_many(source_path: str | Path, source: int, target_path: str | Path, target: int) -> None:
    if source != target:
        raise InputError(
            f"{source_path} has {source} lines and {target_path} has {target}; "
            "parallel files need the same number: line n of one is the translation of line n of the other"
        )


class FilesCorpus:
    """Parallel text of your own: two files a split, plain or gzip, one sentence a line."""

    def __init__(
        self,
        source: str | None,
        target: str | None,
        train_source: str | Path | None,
        train_target: str | Path | None,
        valid_source: str | Path | None,
        valid_target: str | Path | None,
        test_source: str | Path | None,
        test_target: str | Path | None,
    ) -> None:
        given = {
            "source": source,
            "target": target,
            "train_source": train_source,
            "train_target": train_target,
            "valid_source": valid_source,
            "valid_target": valid_target,
            "test_source": test_source,
            "test_target": test_target,
        }
        missing = [f"data.{setting}" for setting, value in given.items() if not value]
        if missing:
            raise ValueError(
                f"{', '.join(missing)}: not given; data=files needs both language codes and the paths of six files, "
                "such as data.source=de data.target=en data.train_source=train.de"
            )
        self.source_language, self.target_language = str(source), str(target)
        self.paths = {
            split: (Path(str(given[f"{split}_source"])), Path(str(given[f"{split}_target"]))) for split in SPLITS
        }

    def load(self) -> dict[str, Pairs]:
        return {split: stream_parallel(*paths) for split, paths in self.paths.items()}

    def fingerprint(self) -> str:
        files = [path for paths in self.paths.values() for path in paths]
        return _fingerprint([self.source_language, self.target_language], files)


class HubCorpus:
    """A translation data set of the Hugging Face hub, or the same text in a local folder.

    Two layouts are known: one column a language (`en`, `de`), or one column `translation` that holds both.

    Args:
        path: name on the hub, such as `bentrevett/multi30k`, or a folder in the hub's layout.
        source: field of the source language; also its language code.
        target: the same for the target language.
        name: configuration of the data set, where it has several.
        revision: branch, tag or commit. Without one, prepared data stays in use when the hub's copy changes.
        root: a folder with `{train,valid,test}.<language>`, plain or `.gz`, read instead of the hub.
        splits: what the data set calls train, valid and test.
    """

    def __init__(
        self,
        path: str,
        source: str,
        target: str,
        name: str | None = None,
        revision: str | None = None,
        root: str | Path | None = None,
        splits: Mapping[str, str] | None = None,
    ) -> None:
        if source == target:
            raise ValueError(
                f"data.source={source} and data.target={target} are the same language; "
                "give two that the data set has, such as data.source=en data.target=de"
            )
        splits = {"train": "train", "valid": "validation", "test": "test"} if splits is None else dict(splits)
        if sorted(splits) != sorted(SPLITS):
            raise ValueError(
                f"data.corpus.splits names {', '.join(splits) or 'nothing'}; give what the data set calls train, valid "
                "and test, such as {train: train, valid: validation, test: test}"
            )
        self.path = path
        self.source_language = source
        self.target_language = target
        self.name = name
        self.revision = revision
        self.root = None if root is None else Path(root)
        self.splits = splits

    def load(self) -> dict[str, Pairs]:
        if self.root is not None:
            return self._files(self.root).load()
        loaded = self._load_from_hub()
        absent = [name for name in self.splits.values() if name not in loaded]
        if absent:
            raise InputError(
                f"{self.path} has no split {', '.join(absent)}; it has {', '.join(loaded)}: "
                "set data.corpus.splits.{train,valid,test}"
            )
        return {split: self._pairs(loaded[name]) for split, name in self.splits.items()}

    def fingerprint(self) -> str:
        if self.root is not None:
            return self._files(self.root).fingerprint()
        settings = [self.path, self.source_language, self.target_language, self.name, self.revision, self.splits]
        return _fingerprint(settings, sorted(file for file in Path(self.path).rglob("*") if file.is_file()))

    def _files(self, root: Path) -> FilesCorpus:
        if not root.is_dir():
            raise InputError(f"data.root={root}: there is no such folder; give one that holds {self._file_names()}")
        paths = {}
        for split in SPLITS:
            for side, language in (("source", self.source_language), ("target", self.target_language)):
                plain = root / f"{split}.{language}"
                packed = root / f"{split}.{language}.gz"
                if not plain.exists() and not packed.exists():
                    raise InputError(
                        f"data.root={root} has no {plain.name} or {packed.name}; give {self._file_names()}"
                    )
                paths[f"{split}_{side}"] = plain if plain.exists() else packed
        return FilesCorpus(self.source_language, self.target_language, **paths)

    def _file_names(self) -> str:
        return ", ".join(f"{s}.{language}" for s in SPLITS for language in (self.source_language, self.target_language))

    def _load_from_hub(self) -> DatasetDict:
        unreachable: Exception | None = None
        offline = datasets.config.HF_HUB_OFFLINE
        # The hub libraries have changed their HTTP library, and with it their exceptions, more than once; whatever
        # they raise, the person needs the same line. So both calls catch all.
        if not Path(self.path).is_dir():
            try:
                HfApi().dataset_info(self.path, revision=self.revision, timeout=HUB_TIMEOUT)
            except Exception as error:
                # Straight to what the hub's own cache holds, without half a minute of retries.
                unreachable = error
                datasets.config.HF_HUB_OFFLINE = True
        try:
            loaded = datasets.load_dataset(self.path, self.name, revision=self.revision)
        except Exception as error:
            cause = unreachable or error
            reason = (str(cause).strip() or type(cause).__name__).splitlines()[0]
            raise InputError(
                f"data.corpus.path={self.path} cannot be loaded from the Hugging Face hub ({reason}); check the name "
                f"and the network, or use local files: data.root=DIR with {self._file_names()} (plain or .gz), "
                "or data=files"
            ) from cause
        finally:
            datasets.config.HF_HUB_OFFLINE = offline
        return loaded

    def _pairs(self, dataset: Dataset) -> Pairs:
        columns = [_hub_column(self.path, dataset, field) for field in (self.source_language, self.target_language)]
        rows = dataset.with_format("arrow")
        return Pairs(dataset.num_rows, lambda count: (_table(*(get(t) for get in columns)) for t in rows.iter(count)))


def _hub_column(path: str, dataset: Dataset, language: str) -> Callable[[pa.Table], pa.ChunkedArray]:
    """What takes the text of `language` out of some rows of `dataset`. Raises InputError where it has none."""

    def one_line(texts: pa.ChunkedArray) -> pa.ChunkedArray:
        # One sentence is one line in every file written later.
        texts = pc.fill_null(texts.cast(pa.string()), "")
        return pc.replace_substring(pc.replace_substring(texts, "\r", " "), "\n", " ")

    if language in dataset.column_names:
        return lambda table: one_line(table[language])
    if "translation" in dataset.column_names and language in dataset.features["translation"]:
        return lambda table: one_line(pc.struct_field(table["translation"], language))
    known = ", ".join(dataset.features.get("translation") or dataset.column_names)
    raise InputError(f"{path} has no language {language}; it has {known}: set data.source and data.target")


def _table(source: pa.Array | pa.ChunkedArray, target: pa.Array | pa.ChunkedArray) -> pa.Table:
    return pa.table({"source": source, "target": target})


def _fingerprint(settings: list[Any], files: list[Path]) -> str:
    digest = hashlib.sha256(json.dumps(settings).encode())
    for path in files:
        try:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}); give a text file, plain or .gz") from None
    return digest.hexdigest()
