"""Words and the subwords (pieces) that spell them.

Words are those of the built-in corpus, where punctuation marks are words, or what stands between spaces. A piece may be
a part of a word, a whole word, a byte of a character, or several words.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headcount.data.batches import Sentences
from headcount.data.tokenizer import SPACE_MARK, Tokenizer, normalise
from headcount.grammar.corpus import words
from headcount.run.arrays import padded

Split = Callable[[str], list[str]]
"""Finds the words of a normalised text: `words`, or `str.split`."""


def spelling(sizes: NDArray[np.int64], text: str, split: Split = words) -> NDArray[np.float32]:
    """Share of each piece's bytes in each word, [piece, word]; rows sum to one.

    sizes: bytes of each piece, see `Tokenizer.piece_bytes`. A space mark belongs to the word behind it.
    """
    owners = _words_of_bytes(text, split)
    shares = np.zeros((len(sizes), owners[-1] + 1 if len(owners) else 0), dtype=np.float32)
    np.add.at(shares, (np.repeat(np.arange(len(sizes)), sizes), owners), np.repeat(1 / sizes, sizes))
    return shares


def _words_of_bytes(text: str, split: Split) -> NDArray[np.int64]:
    """The word of each byte of the text, in which a mark stands for each space and before the first word."""
    normal, at, sizes = normalise(text), 0, []
    found = split(normal)
    for word in found:
        mark = at == 0 or not normal.startswith(word, at)
        sizes.append(mark * len(SPACE_MARK.encode()) + len(word.encode()))
        at += (mark and at > 0) + len(word)
    return np.repeat(np.arange(len(found)), sizes)


class Spelled:
    """Many sentences of one language, as pieces and as words. words [sentence]: the words of each."""

    def __init__(self, tokenizer: Tokenizer, sentences: Sentences, texts: Sequence[str], split: Split = words) -> None:
        self._tokenizer = tokenizer
        self._sentences = sentences
        self._texts = texts
        self._split = split
        self.words = [split(normalise(text)) for text in texts]

    def batch(self, rows: NDArray[np.int64]) -> Tensor:
        """`spelling` of these sentences, [batch, piece, word], zeros for padding."""
        return torch.from_numpy(padded([self._spelling(row) for row in rows.tolist()]))

    def owners(self, row: int) -> NDArray[np.int64]:
        """The word of each piece of a sentence: of several, the one with most of its bytes."""
        spelled = self._spelling(row)
        # A token of no word, such as that of the language, goes with the word before it.
        return np.maximum.accumulate(spelled.argmax(axis=1)) if spelled.size else np.zeros(len(spelled), dtype=np.int64)

    def _spelling(self, row: int) -> NDArray[np.float32]:
        own = getattr(self._tokenizer, "spelling", None)  # of a model that others trained
        if own is not None:
            return own(self._texts[row], self._split)
        return spelling(self._tokenizer.piece_bytes[self._sentences.row(row)], self._texts[row], self._split)
