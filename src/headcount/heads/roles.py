"""Roles of heads by their attention: positional, local, spread, on ends, punctuation or rare words.

Queries of self-attention are the tokens of a text; the token itself is at offset 0, the one before it at -1. A query of
cross-attention is the position that predicts a target token; an offset is the source position less the position of that
token. Ends are no queries.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headcount.data.tokenizer import normalise
from headcount.grammar.corpus import words
from headcount.heads.analysis import Analysis, Arrays, Part
from headcount.heads.evaluation_set import EvaluationSet
from headcount.heads.interface import KINDS
from headcount.heads.likelihood import Progress
from headcount.heads.observed import Observed, When, lacks_source, observed
from headcount.heads.spelling import Spelled
from headcount.run.arrays import padded
from headcount.statistics.bootstrap import Floats
from headcount.statistics.max_t import Ratio, ratio

WINDOW = 8  # the largest offset with a figure of its own
OFFSETS = tuple(range(-WINDOW - 1, WINDOW + 2))  # the first and the last: all that are farther
MEASURES = ("distance", "entropy", "confidence", "rest", "punctuation", "rare", "rarest")
MARKS = ("punctuation", "rare", "rarest")
RARE = 0.1  # the share of the training text that is made of rare words
SIDES = {"encoder": ("source", "source"), "decoder": ("target", "target"), "cross": ("target", "source")}
WHEN: dict[str, When] = {"encoder": "after", "decoder": "after", "cross": "before"}
POSITIONAL = 0.9  # Voita et al. 2019, section 5.1
NEAR = {"previous": -1, "same": 0, "next": 1}


def roles(analysis: Analysis, progress: Progress) -> Arrays:
    """Attention of each head between pieces on the test sentences, as sums over the queries of each sentence.

    queries [sentence, kind]: their number. measures [sentence, head, measure]: see `measured`. weight, maxima
    [sentence, head, offset]: share of attention at each offset, and the number of queries whose maximum is there; valid
    [head, offset]: the maxima on the validation sentences. Also head, kind (of each head), measure, offset, the names.
    """
    frequencies = [word_frequencies(analysis.train[side]) for side in ("source", "target")]
    arrays = _measured(analysis, analysis.test, frequencies, progress)
    valid = _measured(analysis, analysis.valid, frequencies, progress)
    arrays["valid"] = valid["maxima"].sum(axis=0, dtype=np.int64)
    heads = analysis.heads.names
    names: dict[str, Sequence[object]] = {"head": [str(head) for head in heads], "kind": [head.kind for head in heads]}
    names |= {"measure": MEASURES, "offset": OFFSETS}
    return arrays | {name: np.array(values) for name, values in names.items()}


ROLES = Part(
    "roles",
    "attention of each head",
    roles,
    steps=lambda analysis: len(analysis.test) + len(analysis.valid),
    lacks=lacks_source,
    version=2,
)


class Marked:
    """Marks of the words of many sentences: punctuation, rare words, and the rarest word of the sentence."""

    def __init__(self, spelled: Spelled, frequencies: Mapping[str, int]) -> None:
        self._most = rare_words(frequencies)
        self._frequencies = frequencies
        self._words = spelled.words

    def batch(self, rows: NDArray[np.int64]) -> Tensor:
        """[batch, word, mark], 0 or 1."""
        return torch.from_numpy(padded([self._marks(self._words[row]) for row in rows.tolist()]))

    def _marks(self, text: Sequence[str]) -> NDArray[np.float32]:
        counts = [self._frequencies.get(word, 0) for word in text]
        marks = [
            (not any(map(str.isalnum, word)), count <= self._most, count == min(counts))
            for word, count in zip(text, counts, strict=True)
        ]
        return np.array(marks, dtype=np.float32).reshape(-1, len(MARKS))


def word_frequencies(texts: Iterable[str]) -> Counter[str]:
    """The number of times that each word occurs."""
    return Counter(word for text in texts for word in words(normalise(text)))


def rare_words(frequencies: Mapping[str, int], share: float = RARE) -> int:
    """The largest frequency of a rare word: all words of at most this frequency are at most this share of the text; 0
    if there is none."""
    counts = np.sort(np.fromiter(frequencies.values(), np.int64))
    rare = [count for count in np.unique(counts) if counts[counts <= count].sum() <= share * counts.sum()]
    return int(max(rare, default=0))


def _measured(
    analysis: Analysis, sentences: EvaluationSet, frequencies: Sequence[Mapping[str, int]], progress: Progress
) -> Arrays:
    tokenizer, sides = analysis.run.tokenizer, ("source", "target")
    spelled = {
        side: Spelled(getattr(tokenizer, side), getattr(sentences, side), sentences.rows[side]) for side in sides
    }
    marked = {side: Marked(spelled[side], counts) for side, counts in zip(sides, frequencies, strict=True)}
    found: dict[str, list[NDArray]] = {}
    order = []
    for batch in observed(analysis.heads, sentences.source, sentences.target):
        device = batch.source.device
        words = {side: spelled[side].batch(batch.rows).to(device) for side in sides}
        marks = {side: marked[side].batch(batch.rows).to(device) for side in sides}
        for name, values in batch_measures(batch, words, marks).items():
            found.setdefault(name, []).append(values.cpu().numpy())
        order.append(batch.rows)
        progress(len(batch.rows))
    back = np.argsort(np.concatenate(order))
    whole = {name: np.concatenate(parts)[back] for name, parts in found.items()}
    return {name: whole[name].astype(kind) for name, kind in TYPES.items()}


TYPES = {"queries": np.int32, "measures": np.float32, "weight": np.float16, "maxima": np.uint16}


def batch_measures(batch: Observed, words: Mapping[str, Tensor], marks: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The arrays of `roles` for a batch. words [batch, piece, word] and marks [batch, word, mark]: by side."""
    parts: dict[str, list[Tensor]] = {}
    for kind in KINDS:
        of_query, of_key = (words[side] for side in SIDES[kind])
        marked, asked = of_key @ marks[SIDES[kind][1]], of_query.sum(dim=2).gt(0).float()
        share, rest = batch.pieces(kind, WHEN[kind]).by_weight
        found = (asked.sum(dim=1), measured(share, rest, asked, marked), *profiles(share, asked))
        for name, values in zip(TYPES, found, strict=True):
            parts.setdefault(name, []).append(values)
    queries = torch.stack(parts.pop("queries"), dim=1)
    return {"queries": queries} | {name: torch.cat(values, dim=1) for name, values in parts.items()}


def measured(share: Tensor, rest: Tensor, asked: Tensor, marks: Tensor) -> Tensor:
    """Measures of each head, summed over the queries of a sentence, [batch, head, measure].

    share [batch, head, query, key], rest [batch, head, query]: see `Attention`. distance: positions between query and
    key times the share, ends left out. entropy: in nats. confidence: the largest share but for ends (Voita et al. 2019,
    section 4). rest: the share on the end of the source or the beginning of the target. punctuation, rare: the share
    there. rarest: whether the maximum is the rarest word. asked [batch, query]: 1 for a query that counts. marks
    [batch, key, mark].
    """
    place = torch.arange(max(share.shape[-2:]), device=share.device)
    distance = (place[: share.shape[-2], None] - place[: share.shape[-1]]).abs()
    whole = torch.cat([share, rest[..., None].clamp_min(0)], dim=-1)
    largest = share.max(dim=-1)
    on = torch.einsum("bhqk,bkm->mbhq", share, marks[..., :2])
    rarest = marks[:, None, :, 2].expand(*share.shape[:2], -1).gather(-1, largest.indices)
    columns = [(share * distance).sum(dim=-1), torch.special.entr(whole).sum(dim=-1), largest.values, rest, *on, rarest]
    return torch.einsum("mbhq,bq->bhm", torch.stack(columns), asked)


def profiles(share: Tensor, asked: Tensor) -> tuple[Tensor, Tensor]:
    """The share of attention, and the number of maxima, at each offset, [batch, head, offset]."""
    largest = torch.zeros_like(share).scatter_(-1, share.argmax(dim=-1, keepdim=True), 1.0)
    return by_offset(share * asked[:, None, :, None]), by_offset(largest * asked[:, None, :, None])


def by_offset(share: Tensor) -> Tensor:
    """Sums [batch, head, offset] over the diagonals of [batch, head, query, key]."""
    near = [share.diagonal(offset, dim1=-2, dim2=-1).sum(dim=-1) for offset in OFFSETS[1:-1]]
    below, above = share.tril(OFFSETS[0]).sum(dim=(-2, -1)), share.triu(OFFSETS[-1]).sum(dim=(-2, -1))
    return torch.stack([below, *near, above], dim=-1)


@dataclass(frozen=True)
class RoleFigures:
    """Figures of all heads, each a `Ratio` of arrays [head].

    offset [head]: the fixed offset with the most maxima on the validation sentences. figures: "positional", the share
    of maxima at that offset; "previous", "same", "next", the share of attention at -1, 0, 1; "distance", mean of the
    attention but for ends; "entropy" in nats; and the means over queries of the other `MEASURES`.
    """

    heads: tuple[str, ...]
    offset: NDArray[np.int64]
    figures: Mapping[str, Ratio]

    @property
    def positional(self) -> NDArray[np.bool_]:
        """Whether the maxima are at one offset for 90 % of queries, [head]: any offset of the window, and heads of all
        kinds. Voita et al. 2019, section 5.1, define it for the encoder, where the offset is -1 or +1 in practice."""
        return self.figures["positional"].value >= POSITIONAL

    @property
    def effective(self) -> Floats:
        """exp(entropy), the effective number of keys, [head]: as many with equal weights have the same entropy."""
        return np.exp(self.figures["entropy"].value)


def role_figures(arrays: Mapping[str, NDArray]) -> RoleFigures:
    """The figures of all heads from the arrays of `roles`, with intervals by bootstrap over sentences."""
    kinds = [KINDS.index(kind) for kind in arrays["kind"]]
    queries = arrays["queries"][:, kinds].astype(np.float64)
    measures = dict(zip(MEASURES, np.moveaxis(arrays["measures"].astype(np.float64), -1, 0), strict=True))
    best, maxima = fixed_offset(arrays)
    at = {name: arrays["weight"][:, :, OFFSETS.index(offset)] for name, offset in NEAR.items()}
    figures = {name: ratio(sums, queries) for name, sums in {"positional": maxima, **at, **measures}.items()}
    figures["distance"] = ratio(measures["distance"], queries - measures["rest"])
    return RoleFigures(tuple(arrays["head"].tolist()), arrays["offset"][best], figures)


def fixed_offset(arrays: Mapping[str, NDArray]) -> tuple[NDArray[np.int64], NDArray]:
    """The place in `OFFSETS` with the most maxima of each head on validation sentences, [head], and the maxima there on
    each test sentence, [sentence, head]."""
    best = arrays["valid"][:, 1:-1].argmax(axis=-1) + 1
    return best, arrays["maxima"][:, np.arange(len(best)), best]


def positional_heads(arrays: Mapping[str, NDArray]) -> dict[str, int]:
    """The offset of each head with 90 % of its maxima there (Voita et al. 2019, section 5.1); the other heads are
    left out."""
    best, maxima = fixed_offset(arrays)
    queries = arrays["queries"].sum(axis=0, dtype=np.int64)[[KINDS.index(kind) for kind in arrays["kind"]]]
    sure = maxima.sum(axis=0, dtype=np.int64) >= POSITIONAL * queries
    return {str(arrays["head"][n]): int(arrays["offset"][best[n]]) for n in np.flatnonzero(sure & (queries > 0))}
