"""Evidence of the doctor: the text of a corpus as training reads it, and the figures and translations of a run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import regex

from headcount.data.module import TranslationData
from headcount.errors import InputError
from headcount.run.curves import whole_rows
from headcount.run.directory import read_metrics
from headcount.run.opened import Run

MOST_PAIRS = 200_000  # of a split that are read, evenly spaced
NOT_LETTERS = regex.compile(r"[^\p{L}\p{M}\p{N}]+")


class Pairs(NamedTuple):
    """The sides of a split, or translations and references."""

    source: list[str]
    target: list[str]


@dataclass(frozen=True)
class Evidence:
    """What the checks read. A part that is missing is empty or None, and its checks find nothing.

    splits: the text, train after cleaning, valid and test as they are. curves: by name the values of a run's log with
    their steps. translations: by split, with references. loss: mean loss of targets given sources, in nats a token.
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

        def folded(side: list[str]) -> list[str]:
            return [NOT_LETTERS.sub("", text.casefold()) for text in side]

        return {split: Pairs(*map(folded, pairs)) for split, pairs in self.splits.items()}


def of_corpus(data: TranslationData) -> Evidence:
    """The evidence of a corpus, prepared where it is not yet. Raises InputError."""
    data.prepare_data()
    splits = {}
    for split, rows in data.one_way.items():
        some = rows.select(range(0, len(rows), len(rows) // MOST_PAIRS + 1))
        splits[split] = Pairs(list(some["source"]), list(some["target"]))
    return Evidence((data.source_language, data.target_language), splits)


def of_run(run: Run) -> Evidence:
    """The evidence of a finished run. Raises InputError for a damaged file. A corpus that cannot be read is a note."""
    try:
        corpus = of_corpus(run.data())
    except (InputError, OSError) as error:
        corpus = Evidence(run.languages, notes=(f"the corpus is not examined: {error}",))

    def loss(sources: Sequence[str], targets: Sequence[str]) -> float:
        log_probs, tokens = run.scorer.score(sources, targets)
        return -sum(log_probs) / sum(tokens)

    translations = {}
    for path in sorted(run.directory.glob(f"*.hyp.{run.languages[1]}")):
        both = path, path.with_name(path.name.replace(".hyp.", ".ref."))
        texts = (each.read_text(encoding="utf-8", errors="replace").removesuffix("\n").split("\n") for each in both)
        translations[path.name.partition(".")[0]] = Pairs(*texts)
    log = run.directory / "logs" / "metrics.csv"
    rows = whole_rows(log) if log.is_file() else []
    curves = {
        name: [(int(row["step"]) + 1, float(row[name])) for row in rows if row.get(name)]
        for name in ("valid/loss", "valid/bleu")
    }
    return replace(corpus, metrics=read_metrics(run.directory), curves=curves, translations=translations, loss=loss)
