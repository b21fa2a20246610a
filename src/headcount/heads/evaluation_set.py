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

    rows: the text, with all columns of the corpus. source, target: token ids. own: the rows of the corpus itself, whose
    loss is measured; those behind them are contrastive pairs of files. tested [pair]: the rows that have a wrong
    translation, the contrast. contrast: token ids, [pair]. cells [pair]: its phenomenon and grade. twinned [twin]:
    numbers of the pairs that have a twin, the source whose translation the contrast is; twin: token ids, [twin]. All of
    pairs and twins is empty without contrasts.
    """

    rows: Dataset
    source: Sentences
    target: Sentences
    own: np.ndarray
    tested: np.ndarray
    contrast: Sentences
    cells: list[tuple[str, str]]
    twinned: np.ndarray
    twin: Sentences

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def labels(self) -> dict[str, np.ndarray]:
        """The row, phenomenon and grade of each pair, as results keep them."""
        cells = np.array(self.cells, dtype=np.str_).reshape(-1, 2)
        return {"row": self.tested, "phenomenon": cells[:, 0], "grade": cells[:, 1]}

    def chosen(self, most: int) -> np.ndarray:
        """Rows of at most `most` sentences, see `stratified`; without pairs of files, of those with a phenomenon, where
        there are any."""
        mixed = not len(self.tested) or len(self.own) < len(self)
        rows, cells = np.arange(len(self)) if mixed else self.tested, dict(zip(self.tested, self.cells, strict=True))
        return np.asarray(rows[stratified([cells.get(row, ("", "")) for row in rows], most)])

    def twins(self, most: int | None) -> np.ndarray:
        """Numbers, within `twinned`, of at most `most` pairs with a twin, see `stratified`."""
        return stratified([self.cells[pair] for pair in self.twinned], most)


def evaluation_set(run: Run, rows: Dataset, most: int | None = None) -> EvaluationSet:
    """The sentences of `rows` for a run; at most `most`, see `stratified`."""

    def column(name: str, rows: Dataset) -> list[str]:
        return [text or "" for text in rows[name]] if name in rows.column_names else [""] * len(rows)

    def encoded(encode: Callable[[list[str]], list[list[int]]], name: str, rows: Dataset) -> Sentences:
        return Sentences.of(encode(column(name, rows)) if len(rows) else [])

    def cells(rows: Dataset) -> list[tuple[str, str]]:
        return list(zip(column("phenomenon", rows), column("grade", rows), strict=True))

    rows, source, target = (
        rows.select(stratified(cells(rows), most)),
        run.translator.encode,
        run.tokenizer.target.encode,
    )
    tested = np.flatnonzero(list(map(bool, column("contrast", rows))))
    pairs = rows.select(tested)
    twinned = np.flatnonzero(list(map(bool, column("twin", pairs))))
    return EvaluationSet(
        rows,
        encoded(source, "source", rows),
        encoded(target, "target", rows),
        np.flatnonzero([not file for file in column("file", rows)]),
        tested,
        encoded(target, "contrast", pairs),
        cells(pairs),
        twinned,
        encoded(source, "twin", pairs.select(twinned)),
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
