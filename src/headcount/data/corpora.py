"""Where parallel text comes from: the Hugging Face hub, a folder, or files of your own.

Every corpus gives the same thing: a `DatasetDict` with the splits train, valid and test and the text columns
`source` and `target`. Nothing is cleaned here.
"""

import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import datasets
from datasets import Dataset, DatasetDict
from huggingface_hub import HfApi

from headcount.errors import InputError

SPLITS = ("train", "valid", "test")
HUB_TIMEOUT = 10.0  # seconds for the one question whether the hub answers


class Corpus(Protocol):
    """Parallel text in one language pair."""

    source_language: str
    target_language: str

    def load(self) -> DatasetDict:
        """Splits train, valid, test; columns `source`, `target` and whatever else the corpus knows of a pair."""
        ...

    def fingerprint(self) -> str:
        """Changes whenever `load` would give something else; cheap enough to ask at every start."""
        ...


def read_lines(path: str | Path) -> list[str]:
    """The lines of a UTF-8 text file, plain or gzip (told by its first bytes, not by its name).

    Lines end at "\\n" only: `str.splitlines` would also cut at U+2028 and others that stand inside sentences, and
    shift every line after them against the other language. A trailing "\\r" and a leading byte order mark go.

    Raises:
        InputError: the file is missing, unreadable or not UTF-8.
    """
    try:
        content = Path(path).read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; give the path of a text file, plain or .gz") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error}); give a text file, plain or .gz") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {line}: not valid UTF-8; convert the file, as with iconv -t UTF-8") from None
    lines = text.split("\n")
    if not lines[-1]:  # what follows the last line end is no line
        lines.pop()
    return [line.rstrip("\r") for line in lines]


def read_parallel(source_path: str | Path, target_path: str | Path) -> tuple[list[str], list[str]]:
    """Both sides of a parallel text: line n of one file translates line n of the other.

    Raises:
        InputError: a file cannot be read, or the line counts differ.
    """
    source, target = read_lines(source_path), read_lines(target_path)
    if len(source) != len(target):
        raise InputError(
            f"{source_path} has {len(source)} lines and {target_path} has {len(target)}; "
            "parallel files need the same number: line n of one is the translation of line n of the other"
        )
    return source, target


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

    def load(self) -> DatasetDict:
        pairs = {split: read_parallel(*paths) for split, paths in self.paths.items()}
        return DatasetDict({split: _dataset(source, target) for split, (source, target) in pairs.items()})

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

    def load(self) -> DatasetDict:
        if self.root is not None:
            return self._files(self.root).load()
        loaded = self._load_from_hub()
        absent = [name for name in self.splits.values() if name not in loaded]
        if absent:
            raise InputError(
                f"{self.path} has no split {', '.join(absent)}; it has {', '.join(loaded)}: "
                "set data.corpus.splits.{train,valid,test}"
            )
        return DatasetDict(
            {
                split: _dataset(
                    self._column(loaded[name], self.source_language), self._column(loaded[name], self.target_language)
                )
                for split, name in self.splits.items()
            }
        )

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

    def _column(self, dataset: Dataset, language: str) -> list[str]:
        if language in dataset.column_names:
            texts = dataset[:][language]
        elif "translation" in dataset.column_names and language in dataset.features["translation"]:
            texts = [pair[language] for pair in dataset[:]["translation"]]
        else:
            known = ", ".join(dataset.features.get("translation") or dataset.column_names)
            raise InputError(f"{self.path} has no language {language}; it has {known}: set data.source and data.target")
        # One sentence is one line in every file written later.
        return [(text or "").replace("\r", " ").replace("\n", " ") for text in texts]


def _dataset(source: list[str], target: list[str]) -> Dataset:
    return Dataset.from_dict(
        {"source": source, "target": target},
        features=datasets.Features({"source": datasets.Value("string"), "target": datasets.Value("string")}),
    )


def _fingerprint(settings: list[Any], files: list[Path]) -> str:
    digest = hashlib.sha256(json.dumps(settings).encode())
    for path in files:
        try:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}); give a text file, plain or .gz") from None
    return digest.hexdigest()
