"""Evidence of the doctor: the text of a corpus as training reads it, and the figures and translations of a run."""

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from datasets import Dataset

from headcount.data.module import TranslationData
from headcount.data.tokenizer import AnyTokenizer
from headcount.doctor.texts import folded, words
from headcount.errors import InputError
from headcount.files import read_bytes
from headcount.run.curves import whole_rows
from headcount.run.directory import read_metrics, read_settings
from headcount.run.identity import recorded, with_text
from headcount.run.opened import Run
from headcount.run.scores import doubts

MOST_PAIRS = 200_000  # of train that are read, evenly spaced; of a larger corpus, the figures are of these
MOST_TEXT = 2**28  # bytes of translations

Curve = Sequence[tuple[int, float]]  # (optimizer steps, value)
Score = Callable[[Sequence[str], Sequence[str]], float]  # mean loss of targets given sources, in nats a token


class Pairs(NamedTuple):
    """The sides of a split, of equal length."""

    source: list[str]
    target: list[str]


@dataclass(frozen=True)
class Evidence:
    """What the checks read. A part that is missing is empty or None, and the checks of it measure nothing.

    languages: codes of source and target. splits: the text, train after cleaning and valid and test as they are.
    read, kept: pairs of train before and after cleaning. config, metrics, curves: those of a run. translations:
    of the run by split, each with its references. loss: of the run's model. changed: whether the corpus has changed
    since training. notes: what is missing, and why.
    """

    languages: tuple[str, str]
    splits: Mapping[str, Pairs] = field(default_factory=dict)
    tokenizer: AnyTokenizer | None = None
    read: int = 0
    kept: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    curves: Mapping[str, Curve] = field(default_factory=dict)
    translations: Mapping[str, tuple[list[str], list[str]]] = field(default_factory=dict)
    loss: Score | None = None
    changed: bool | None = None
    notes: tuple[str, ...] = ()

    @property
    def held_out(self) -> list[str]:
        """Splits that scores are of: valid, test, and further test sets."""
        return [split for split in self.splits if split != "train"]

    @property
    def two_languages(self) -> bool:
        return self.languages[0] != self.languages[1]

    @cached_property
    def folded(self) -> dict[str, Pairs]:
        """The splits without case, punctuation and spaces."""
        return {
            split: Pairs(*([folded(text) for text in side] for side in pairs)) for split, pairs in self.splits.items()
        }

    @cached_property
    def word_counts(self) -> tuple[Counter[str], Counter[str]]:
        """Words of the sides of train, and how often each occurs."""
        source, target = (Counter(word for text in side for word in words(text)) for side in self.splits["train"])
        return source, target

    @cached_property
    def pieces(self) -> dict[str, tuple[list[np.ndarray], list[np.ndarray]]]:
        """Piece numbers of each sentence, by split and side."""
        assert self.tokenizer is not None
        encode = self.tokenizer.source.encode, self.tokenizer.target.encode
        return {
            split: tuple(
                [np.array(ids, dtype=np.int64) for ids in each(side)] for each, side in zip(encode, pairs, strict=True)
            )  # type: ignore[misc]
            for split, pairs in self.splits.items()
        }


def of_corpus(data: TranslationData) -> Evidence:
    """The evidence of a corpus, prepared where it is not yet. Raises InputError."""
    data.prepare_data()
    counts = data.report.counts["train"]
    return Evidence(
        languages=(data.source_language, data.target_language),
        splits={split: _pairs(rows) for split, rows in data.data.items()},
        tokenizer=data.tokenizer,
        read=counts["read"],
        kept=counts["kept"],
    )


def _pairs(rows: Dataset) -> Pairs:
    every = math.ceil(len(rows) / MOST_PAIRS) or 1
    some = rows.select(range(0, len(rows), every)) if every > 1 else rows
    return Pairs(list(some["source"]), list(some["target"]))


def of_both_sides(config: Any) -> Any:
    """A DictConfig whose text is that of the corpus, in its own direction, whichever part of it the model reads."""
    config = config.copy()
    for name in ("both_directions", "hide_source"):
        if config.data.get(name):
            config.data[name] = False
    return config


def of_run(run: Run) -> Evidence:
    """The evidence of a finished run. Raises InputError for a damaged file. A corpus that cannot be read is a note."""
    config = of_both_sides(run.config)
    notes: tuple[str, ...] = ()
    changed = None
    try:
        changed = None if recorded(config) is None else recorded(config) != recorded(with_text(config, run.trust))
        data = Run(run.directory, config, run.model, run.tokenizer, run.translator, run.trust).data()
        corpus = of_corpus(data)
        scored = {split: data.data[split] for split in data.held_out_splits}
        notes = tuple(doubts(scored, run.tokenizer, run.translator.search, "char"))  # a check looks at its own
    except (InputError, OSError) as error:
        corpus = Evidence(run.languages)
        notes = (f"the corpus is not examined: {error}",)

    def loss(sources: Sequence[str], targets: Sequence[str]) -> float:
        log_probs, tokens = run.scorer.score(sources, targets)
        return -sum(log_probs) / sum(tokens)

    return Evidence(
        languages=run.languages,
        splits=corpus.splits,
        tokenizer=run.tokenizer,
        read=corpus.read,
        kept=corpus.kept,
        config=read_settings(run.directory / "config.yaml"),
        metrics=read_metrics(run.directory),
        curves=_curves(run.directory / "logs" / "metrics.csv"),
        translations=_translations(run.directory, run.languages[1]),
        loss=None if run.translator.hide_source else loss,
        changed=changed,
        notes=notes,
    )


def _curves(path: Path) -> dict[str, list[tuple[int, float]]]:
    curves: dict[str, list[tuple[int, float]]] = {}
    for row in whole_rows(path) if path.is_file() else []:
        for name in ("valid/loss", "valid/bleu"):
            with contextlib.suppress(ValueError):  # an empty cell, or no number
                curves.setdefault(name, []).append((int(row["step"]) + 1, float(row.get(name, ""))))
    return curves


def _translations(directory: Path, language: str) -> dict[str, tuple[list[str], list[str]]]:
    found = {}
    for path in sorted(directory.glob(f"*.hyp.{language}")):
        split = path.name.partition(".")[0]
        references = directory / f"{split}.ref.{language}"
        if references.is_file():
            found[split] = (_lines(path), _lines(references))
            if len(set(map(len, found[split]))) > 1:
                raise InputError(f"{path}: has not as many lines as {references.name}; evaluate the run again")
    return found


def _lines(path: Path) -> list[str]:
    try:
        return read_bytes(path, MOST_TEXT).decode().removesuffix("\n").split("\n")
    except ValueError as error:
        raise InputError(f"{path}: not UTF-8 text; evaluate the run again") from error
