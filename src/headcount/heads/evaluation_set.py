"""Evaluation set: sentences as token ids, with the wrong translation and the twin of each where the corpus has them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from datasets import Dataset

from headcount.data.batches import Sentences
from headcount.run.opened import Run


@dataclass(frozen=True)
class EvaluationSet:
    """Sentences to measure heads on.

    rows: the text, with all columns of the corpus. source, target: token ids. tested [pair]: the rows that have a wrong
    translation, the contrast, and a twin, the source whose translation that is. contrast, twin: token ids, [pair].
    group [pair]: the number of its phenomenon and grade in `groups`; both are empty on a corpus without contrasts.
    """

    rows: Dataset
    source: Sentences
    target: Sentences
    tested: np.ndarray
    contrast: Sentences
    twin: Sentences
    group: np.ndarray
    groups: tuple[tuple[str, str], ...]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def phenomena(self) -> tuple[str, ...]:
        """The phenomena that the pairs test, in alphabetical order."""
        return tuple(sorted({phenomenon for phenomenon, _ in self.groups}))

    @property
    def labels(self) -> dict[str, np.ndarray]:
        """The row, phenomenon and grade of each pair, as results keep them."""
        cells = np.array(self.groups, dtype=np.str_).reshape(-1, 2)[self.group]
        return {"row": self.tested, "phenomenon": cells[:, 0], "grade": cells[:, 1]}

    @property
    def phenomenon(self) -> np.ndarray:
        """The number of each pair's phenomenon in `phenomena`, [pair]."""
        numbers = [self.phenomena.index(phenomenon) for phenomenon, _ in self.groups]
        return np.array(numbers, dtype=np.int64)[self.group]


def evaluation_set(run: Run, rows: Dataset, most: int | None = None) -> EvaluationSet:
    """The sentences of `rows` for a run; at most `most`, evenly spread over all."""
    if most is not None and len(rows) > most:
        rows = rows.select(np.linspace(0, len(rows) - 1, most).round().astype(int))

    def column(name: str) -> Sequence[str]:
        return list(rows[name]) if name in rows.column_names else [""] * len(rows)

    contrast, twin = column("contrast"), column("twin")
    tested = np.array([row for row in range(len(rows)) if contrast[row] and twin[row]], dtype=np.int64)
    cells = [(rows["phenomenon"][row], rows["grade"][row]) for row in tested.tolist()] if len(tested) else []
    groups = tuple(sorted(set(cells)))
    return EvaluationSet(
        rows,
        _encoded(run.translator.encode, column("source")),
        _encoded(run.tokenizer.target.encode, column("target")),
        tested,
        _encoded(run.tokenizer.target.encode, [contrast[row] for row in tested]),
        _encoded(run.translator.encode, [twin[row] for row in tested]),
        np.array([groups.index(cell) for cell in cells], dtype=np.int64),
        groups,
    )


def select(sentences: Sentences, rows: np.ndarray) -> Sentences:
    """Some of the sentences, in the order of `rows`."""
    return Sentences(sentences.pieces, sentences.starts[rows], sentences.ends[rows])


def _encoded(encode: Callable[[list[str]], list[list[int]]], texts: Sequence[str]) -> Sentences:
    return Sentences.of(encode(list(texts)) if texts else [])
