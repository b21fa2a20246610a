"""Lexical shortlist: the target pieces that a search may choose from, by a lexical translation table (IBM model 1).

The table is that of Brown et al. 1993, "The mathematics of statistical machine translation", section 4.1, between
pieces instead of words. The shortlist is that of Jean et al. 2015, "On using very large target vocabulary for neural
machine translation", section 3.3: the most frequent target pieces, and the most probable translations of each source
piece.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

MOST_PER_PIECE = 100  # translations of a source piece that a lexicon holds
RANGES = {"frequent": (1, math.inf), "per_piece": (0, MOST_PER_PIECE)}  # of the settings of a shortlist
FORM = f"whole numbers {{frequent:N,per_piece:K}} with N from 1 and K from 0 to {MOST_PER_PIECE}"
ROUNDS = 5  # of expectation and maximisation
MOST_CELLS = 2**24  # pairs of a source and a target piece in one sentence, on which a lexicon is learned
NONE = -1
CANDIDATES_MULTIPLE = 256  # oneDNN compiles a program for each number of candidates


def check_shortlist(name: str, shortlist: Mapping[str, Any], form: str = FORM) -> None:
    """Raises ValueError, with the name of the setting and `form`, if these are not the settings of a shortlist."""
    if shortlist.keys() != RANGES.keys() or not all(
        type(shortlist[each]) is int and least <= shortlist[each] <= most for each, (least, most) in RANGES.items()
    ):
        shown = ",".join(f"{each}:{value}" for each, value in shortlist.items())
        raise ValueError(f"{name}={{{shown}}}: must be {form}")


class Pieces(NamedTuple):
    """The pieces of many sentences, one after the other [token], and the number of them in each [sentence]."""

    tokens: np.ndarray
    lengths: np.ndarray


@dataclass(frozen=True)
class Lexicon:
    """Target pieces for source pieces, best first.

    translations: [source_vocab, rank], by t(target | source); `NONE` where there are no more. frequent: all pieces of
    the target vocabulary [target_vocab], the most frequent first. shared: whether both sides have one vocabulary; then
    a search may copy each piece of the source.
    """

    translations: np.ndarray
    frequent: np.ndarray
    shared: bool

    def shortlist(self, sources: Sequence[Sequence[int]], frequent: int, per_piece: int) -> np.ndarray:
        """The `frequent` most frequent target pieces, and for each piece of these sources the `per_piece` most probable
        translations, in the order of their numbers: int64 [candidate]. Of many candidates, the number is rounded up to
        a multiple of `CANDIDATES_MULTIPLE` with more frequent pieces."""
        pieces = np.unique(np.concatenate([np.asarray(source, dtype=np.int64) for source in sources]))
        chosen = [self.frequent[:frequent], self.translations[pieces, :per_piece].ravel()]
        found = np.unique(np.concatenate([*chosen, pieces] if self.shared else chosen)).astype(np.int64)
        found = found[found != NONE]
        if len(found) > CANDIDATES_MULTIPLE:
            others = self.frequent[~np.isin(self.frequent, found)]
            found = np.union1d(found, others[: -len(found) % CANDIDATES_MULTIPLE])
        return found


def sample(source_lengths: np.ndarray, target_lengths: np.ndarray) -> np.ndarray:
    """Which sentence pairs a lexicon is learned from, bool [sentence]: all, or of more text than `MOST_CELLS` a random
    sample, which is always the same. source_lengths, target_lengths: in pieces, int [sentence]."""
    cells = int(np.dot(source_lengths.astype(np.int64) + 1, target_lengths.astype(np.int64)))
    return np.random.default_rng(0).random(len(source_lengths)) < MOST_CELLS / max(1, cells)


def learn_lexicon(source: Pieces, target: Pieces, sizes: tuple[int, int], shared: bool) -> Lexicon:
    """The lexicon of sentence pairs; sizes: of the vocabularies of source and target."""
    giver, taker, probability = translation_probabilities(source, target, sizes)
    order = np.lexsort((-probability, giver))
    order = order[giver[order] < sizes[0]]  # without those of the empty word
    giver, taker = giver[order], taker[order]
    rank = np.arange(len(giver)) - np.searchsorted(giver, giver)
    held = rank < MOST_PER_PIECE
    translations = np.full((sizes[0], min(MOST_PER_PIECE, sizes[1])), NONE, dtype=np.int32)
    translations[giver[held], rank[held]] = taker[held]
    counts = np.bincount(target.tokens, minlength=sizes[1])
    return Lexicon(translations, np.argsort(-counts, kind="stable").astype(np.int32), shared)


def translation_probabilities(
    source: Pieces, target: Pieces, sizes: tuple[int, int], rounds: int = ROUNDS
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """IBM model 1: t(target piece | source piece) of all pairs of pieces that occur in one sentence pair.

    The empty word has the number sizes[0]. Each round is Brown et al. 1993, equations 17 and 14, all pairs at once. The
    result: source pieces, target pieces and probabilities, each [pair].
    """
    begins = np.cumsum(source.lengths) - source.lengths
    givers = np.insert(source.tokens.astype(np.int64), begins, sizes[0])  # an empty word before each sentence
    lengths, begins = source.lengths + 1, begins + np.arange(len(begins))
    # A cell is a place of the source and a place of the target in one sentence pair.
    cells = np.repeat(lengths, target.lengths)  # [target place]
    first = np.cumsum(cells) - cells
    place = np.arange(cells.sum()) - np.repeat(first - np.repeat(begins, target.lengths), cells)
    pairs, cell = np.unique(
        givers[place] * sizes[1] + np.repeat(target.tokens.astype(np.int64), cells), return_inverse=True
    )
    giver, taker = np.divmod(pairs, sizes[1])
    probability = np.ones(len(pairs))
    for _ in range(rounds):
        expected = probability[cell]
        expected /= np.repeat(np.add.reduceat(expected, first), cells)
        counts = np.bincount(cell, expected)
        probability = counts / np.bincount(giver, counts)[giver]
    return giver, taker, probability
