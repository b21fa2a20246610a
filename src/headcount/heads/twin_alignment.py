"""Alignment of the source tokens of a sentence and its twin: equal words, and changed words in the same place."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NONE = -1


class Tokens(NamedTuple):
    """A sentence as words, and the word of each of its tokens, in order, without its end."""

    words: Sequence[str]
    owner: NDArray[np.int64]

    def span(self, first: int, end: int) -> tuple[int, int]:
        """The first token and the end of the words from `first` to `end` - 1."""
        start, stop = np.searchsorted(self.owner, [first, end]).tolist()
        return start, stop


def places(sentence: Tokens, twin: Tokens) -> NDArray[np.int64]:
    """The token of the twin for each token of a sentence, its end counted; -1 for none.

    Words are aligned by difflib, changed words to those in their place one by one, or as a block if their numbers
    differ. Tokens are spread evenly over those of the other word or block; a single one is put at the last, where a
    verb follows "did not". Words without a counterpart have none.
    """
    found = np.full(len(sentence.owner) + 1, NONE, dtype=np.int64)
    for kind, *block in SequenceMatcher(None, sentence.words, twin.words, autojunk=False).get_opcodes():
        for i, j, k, m in _units(*block) if kind in ("equal", "replace") else ():
            start, end = sentence.span(i, j)
            found[start:end] = spread(end - start, *twin.span(k, m))
    found[-1] = len(twin.owner)
    return found


def _units(i: int, j: int, k: int, m: int) -> list[tuple[int, int, int, int]]:
    """The words from i to j and from k to m as pairs of single words, if there are as many."""
    if j - i != m - k:
        return [(i, j, k, m)]
    return [(i + step, i + step + 1, k + step, k + step + 1) for step in range(j - i)]


def spread(count: int, start: int, end: int) -> NDArray[np.int64]:
    """`count` of the places from start to end - 1, evenly, the first and the last among them; a single one is the last;
    -1 where there is no place."""
    if start == end:
        return np.full(count, NONE, dtype=np.int64)
    if count == 1:
        return np.array([end - 1])
    return np.rint(np.linspace(start, end - 1, count)).astype(np.int64)
