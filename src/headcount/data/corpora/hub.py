"""Translation data sets of the Hugging Face hub."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
from datasets import Dataset

from headcount.data.corpora.corpus import SPLITS, fingerprint, language_codes, not_given, test_set_name
from headcount.data.corpora.files import FilesCorpus, test_files
from headcount.data.corpora.held_out import HeldOut
from headcount.data.corpora.tables import text_columns
from headcount.errors import InputError, first_line
from headcount.settings import Positive


@dataclass(kw_only=True)
class HubCorpus:
    """A translation data set of the Hugging Face hub, or the same text in a local folder.

    Two layouts are supported: one column a language (`en`, `de`), or one column `translation` that holds both.

    conf/data/hub.yaml explains the settings; see also `HeldOut`. path: None with `root`. revision: None for the newest
    when the data is prepared. tests: a split that is named is, with `root`, the stem of its files. Raises ValueError
    for a setting that is missing, or two that exclude each other.
    """

    path: str | None
    source: str | None
    target: str | None
    name: str | None
    revision: str | None
    root: str | Path | None
    splits: Mapping[str, str | None]
    source_field: str | None
    target_field: str | None
    held_out: Mapping[str, Any] | None
    max_pairs: Positive | None
    tests: Mapping[str, Any] | None

    def __post_init__(self) -> None:
        place = self.path or self.root
        if not place or not self.source or not self.target:
            needs = (
                "needed are the name of a data set and both language codes, such as data.path=Helsinki-NLP/opus_books "
                "data.name=de-en data.source=de data.target=en, or for the name a folder, data.root=DIR"
            )
            raise not_given(needs, path=place, source=self.source, target=self.target)
        self.source_language, self.target_language = language_codes(self.source, self.target, differ=True)
        self.cut = HeldOut(self.held_out, self.max_pairs)
        for split in SPLITS:
            if not self.splits.get(split) and split not in self.cut.sizes:
                raise ValueError(
                    f"data.splits.{split}: not given; give the data set's name of it"
                    + ("" if split == "train" else f", or take pairs of train: data.held_out.{split}=2000")
                )
        self.fields = self.source_field or self.source, self.target_field or self.target
        self.places = {test_set_name(str(name)): place for name, place in (self.tests or {}).items()}
        self.named_tests = {name: place for name, place in self.places.items() if isinstance(place, str)}
        own = {name: place for name, place in self.places.items() if name not in self.named_tests}
        self.test_files = test_files(own, self.fields)

    def load(self) -> dict[str, Dataset]:
        if self.root is not None:
            return self._local().load()
        wanted = {split: name for split, name in self.splits.items() if split not in self.cut.sizes}
        wanted |= self.named_tests
        loaded = self._load_from_hub()
        absent = {split: name for split, name in wanted.items() if name not in loaded}
        if absent:
            raise InputError(
                f"{self.path} has no split {', '.join(map(str, absent.values()))}; it has {', '.join(loaded)}: set "
                + " and ".join(f"data.{'splits' if split in SPLITS else 'tests'}.{split}" for split in absent)
                + "".join(f", or data.held_out.{split}=2000" for split in absent if split in ("valid", "test"))
            )
        remedy = "set data.source_field and data.target_field, or data.source and data.target"
        splits = {
            split: text_columns(loaded[str(name)].data.table, self.fields, str(self.path), remedy)
            for split, name in wanted.items()
        }
        return self.cut.cut(splits | {test: files.read() for test, files in self.test_files.items()})

    def fingerprint(self) -> str:
        if self.root is not None:
            return self._local().fingerprint()
        files = sorted(file for file in Path(str(self.path)).rglob("*") if file.is_file())
        path = None if files else self.path  # a folder is the same text wherever it lies
        settings = [path, self.source_language, self.target_language, self.name, self.revision, self.splits]
        further = {
            "fields": self.fields if self.fields != (self.source_language, self.target_language) else None,
            **self.cut.settings,
            "tests": {test: self.named_tests.get(test) for test in self.places},
            # If the path is a folder, the files' names give their splits.
            "names": [file.relative_to(str(self.path)).as_posix() for file in files],
        }
        own = [path for test in self.test_files.values() for path in test.paths]
        return fingerprint(settings, further, [*files, *own])

    def _local(self) -> FilesCorpus:
        splits = {split: None if split in self.cut.sizes else self._in_folder(split) for split in SPLITS}
        tests = self.places | {test: self._in_folder(stem) for test, stem in self.named_tests.items()}
        columns = {"source_column": self.source_field, "target_column": self.target_field}
        own = {"source": self.source, "target": self.target, "held_out": self.held_out, "max_pairs": self.max_pairs}
        return FilesCorpus(**splits, **columns, **own, tests=tests)  # type: ignore[arg-type]

    def _in_folder(self, stem: str) -> list[Path]:
        sides = []
        for language in (self.source_language, self.target_language):
            name = f"{stem}.{language}"
            found = [path for path in (Path(f"{self.root}/{name}"), Path(f"{self.root}/{name}.gz")) if path.exists()]
            if not found:
                raise InputError(f"data.root={self.root} has no {name} or {name}.gz; give {self._file_names()}")
            sides.append(found[0])
        return sides

    def _file_names(self) -> str:
        languages = self.source_language, self.target_language
        stems = [*(split for split in SPLITS if split not in self.cut.sizes), *self.named_tests.values()]
        return ", ".join(f"{stem}.{language}" for stem in stems for language in languages)

    def _load_from_hub(self) -> Mapping[str, Dataset]:
        path = str(self.path)
        datasets.disable_progress_bars()
        try:
            with tempfile.TemporaryDirectory() as cache:
                own: dict[str, Any] = {"cache_dir": cache, "keep_in_memory": True} if Path(path).is_dir() else {}
                return datasets.load_dataset(path, self.name, revision=self.revision, **own)
        except Exception as error:  # of the HTTP library, which has changed more than once, among others
            raise InputError(
                f"data.path={path} cannot be loaded from the Hugging Face hub ({first_line(error)}); "
                "check data.name, the name and the network, or use local files: data.root=DIR with "
                f"{self._file_names()} (plain or .gz), or data=files"
            ) from error
