"""Evidence of the doctor: the text of a corpus as training reads it, and the figures and translations of a run."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import regex

from headcount.data.module import TranslationData
from headcount.errors import InputError
from headcount.run.curves import whole_rows
from headcount.run.directory import read_metrics
from headcount.run.opened import Run, data_of_run

MOST_PAIRS = 200_000  # of a split that are read, evenly spaced
NOT_LETTERS = regex.compile(r"[^\p{L}\p{M}\p{N}]+")


class Pairs(NamedTuple):
    """The sides of a split, or translations and references."""

    source: list[str]
    target: list[str]


@dataclass(frozen=True)
class Evidence:
    """What the checks read. A part that is missing is empty or None, and its checks find nothing.

    languages: codes of source and target. splits: the text, train after cleaning, valid and test as they are. metrics,
    curves: figures of a run, and by name the values of its log with their steps. translations: by split, each with its
    references. loss: the mean loss of targets given sources, in nats a token. notes: what is missing, and why.
    """

    languages: tuple[str, str]
    splits: Mapping[str, Pairs] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    curves: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    translations: Mapping[str, Pairs] = field(default_factory=dict)
    loss: Callable[[Sequence[str], Sequence[str]], float] | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def folded(self) -> dict[str, Pairs]:
        """The splits without case, punctuation and spaces."""
        return {
            split: Pairs(*([NOT_LETTERS.sub("", text.casefold()) for text in side] for side in pairs))
            for split, pairs in self.splits.items()
        }


def of_corpus(data: TranslationData) -> Evidence:
    """The evidence of a corpus, prepared where it is not yet. Raises InputError."""
    data.prepare_data()
    splits = {}
    for split, rows in data.data.items():
        some = rows.select(range(0, len(rows), len(rows) // MOST_PAIRS + 1))
        splits[split] = Pairs(list(some["source"]), list(some["target"]))
    return Evidence((data.source_language, data.target_language), splits)


def of_both_sides(config: Any) -> Any:
    """A DictConfig whose text is that of the corpus, in its own direction, whichever part of it the model reads."""
    config = config.copy()
    config.data.update({name: False for name in ("both_directions", "hide_source") if config.data.get(name)})
    return config


def of_run(run: Run) -> Evidence:
    """The evidence of a finished run. Raises InputError for a damaged file. A corpus that cannot be read is a note."""
    try:
        corpus = of_corpus(data_of_run(of_both_sides(run.config), run.tokenizer))
    except (InputError, OSError) as error:
        corpus = Evidence(run.languages, notes=(f"the corpus is not examined: {error}",))

    def loss(sources: Sequence[str], targets: Sequence[str]) -> float:
        log_probs, tokens = run.scorer.score(sources, targets)
        return -sum(log_probs) / sum(tokens)

    translations = {}
    for path in sorted(run.directory.glob(f"*.hyp.{run.languages[1]}")):
        both = path, path.with_name(path.name.replace(".hyp.", ".ref."))
        if both[1].is_file():
            texts = (each.read_text(encoding="utf-8", errors="replace").removesuffix("\n") for each in both)
            translations[path.name.partition(".")[0]] = Pairs(*(text.split("\n") for text in texts))
    curves = _curves(run.directory / "logs" / "metrics.csv")
    score = None if run.translator.hide_source else loss
    return replace(corpus, metrics=read_metrics(run.directory), curves=curves, translations=translations, loss=score)


def _curves(path: Path) -> dict[str, list[tuple[int, float]]]:
    curves: dict[str, list[tuple[int, float]]] = {}
    for row in whole_rows(path) if path.is_file() else []:
        for name in ("valid/loss", "valid/bleu"):
            with contextlib.suppress(ValueError):  # an empty cell
                curves.setdefault(name, []).append((int(row["step"]) + 1, float(row.get(name, ""))))
    return curves
