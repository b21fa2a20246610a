"""Alignment of the source tokens of a sentence and its twin: equal words, and changed words in the same place."""

import itertools
from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np
from numpy.typing import NDArray

from headcount.grammar.corpus import words

NONE = -1
SPACE = "\u2581"  # sentencepiece's sign


def places(sentence: Sequence[str], twin: Sequence[str]) -> NDArray[np.int64]:
    """The token of the twin for each token of a sentence, its end counted; -1 for none. Both are given as pieces.

    Words are aligned by difflib, changed words to those in their place one by one, or as a block if their numbers
    differ. Pieces are spread evenly over those of the other word or block; a single one is put at the last, where a
    verb follows "did not". Words without a counterpart have none.
    """
    both = (sentence, twin)
    spans = [_spans(pieces) for pieces in both]
    first, second = (["".join(pieces[i:j]) for i, j in each] for pieces, each in zip(both, spans, strict=True))
    found = np.full(len(sentence) + 1, NONE, dtype=np.int64)
    for kind, i, j, k, m in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if kind in ("equal", "replace"):
            here, there = spans[0][i:j], spans[1][k:m]
            if len(here) != len(there):
                here, there = ([(block[0][0], block[-1][1])] for block in (here, there))
            for (start, end), place in zip(here, there, strict=True):
                found[start:end] = spread(end - start, *place)
    found[-1] = len(twin)
    return found


def spread(count: int, start: int, end: int) -> NDArray[np.int64]:
    """`count` of the places from start to end - 1, evenly, the first and the last among them; a single one is the
    last."""
    if count == 1:
        return np.array([end - 1])
    return np.rint(np.linspace(start, end - 1, count)).astype(np.int64)


def _spans(pieces: Sequence[str]) -> list[tuple[int, int]]:
    """First piece and end of each word. A piece belongs to the word in which its text begins."""
    text = "".join(pieces).replace(SPACE, " ")
    lengths = [len(piece.replace(SPACE, "")) for piece in pieces]
    starts = np.cumsum([0, *lengths[:-1]])
    ends = np.cumsum([len(word) for word in words(text)])
    word = np.searchsorted(ends, starts[: len(pieces)], side="right")
    groups = [list(group) for _, group in itertools.groupby(range(len(pieces)), key=word.__getitem__)]
    return [(group[0], group[-1] + 1) for group in groups]
