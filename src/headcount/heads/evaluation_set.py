"""Evaluation set: sentences as token ids, with the wrong translation and the twin of each where the corpus has them."""

from collections import Counter
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
    def cells(self) -> list[tuple[str, str]]:
        """The phenomenon and grade of each pair."""
        return [self.groups[number] for number in self.group.tolist()]

    @property
    def labels(self) -> dict[str, np.ndarray]:
        """The row, phenomenon and grade of each pair, as results keep them."""
        cells = np.array(self.groups, dtype=np.str_).reshape(-1, 2)[self.group]
        return {"row": self.tested, "phenomenon": cells[:, 0], "grade": cells[:, 1]}


def evaluation_set(run: Run, rows: Dataset, most: int | None = None) -> EvaluationSet:
    """The sentences of `rows` for a run; at most `most`, see `stratified`."""
    labels = [rows[name] if name in rows.column_names else [""] * len(rows) for name in ("phenomenon", "grade")]
    rows = rows.select(stratified(list(zip(*labels, strict=True)), most))

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


def stratified(cells: Sequence[tuple[str, str]], most: int | None) -> np.ndarray:
    """The numbers of at most `most` sentences, in order: as many of each phenomenon as possible, within it of each
    grade, and within that of even and of odd places (the two answers alternate in the built-in test set), at random but
    always alike. cells [sentence]: phenomenon and grade; most None: all."""
    rank, seen = np.random.default_rng(0).permutation(len(cells)), Counter[tuple[str, str]]()
    places = []
    for cell in cells:
        seen[cell] += 1
        places.append((*cell, seen[cell] % 2))
    for strata in (places, cells, [cell[0] for cell in cells]):
        members: dict[object, list[int]] = {}
        for number in np.argsort(rank, kind="stable").tolist():
            members.setdefault(strata[number], []).append(number)
        for numbers in members.values():
            rank[numbers] = np.arange(len(numbers))
    return np.sort(np.argsort(rank, kind="stable")[:most])


def select(sentences: Sentences, rows: np.ndarray) -> Sentences:
    """Some of the sentences, in the order of `rows`."""
    return Sentences(sentences.pieces, sentences.starts[rows], sentences.ends[rows])


def _encoded(encode: Callable[[list[str]], list[list[int]]], texts: Sequence[str]) -> Sentences:
    return Sentences.of(encode(list(texts)) if texts else [])
