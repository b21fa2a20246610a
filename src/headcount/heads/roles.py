"""Roles of heads by their attention: positional, local, spread, on ends, punctuation or rare words.

Queries of self-attention are the tokens of a text; the token itself is at offset 0, the one before it at -1. A query of
cross-attention is the position that predicts a target token; an offset is the source position less the position of that
token. Ends are no queries.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

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
from headcount.heads.observed import Observed, When, in_order, observed, spelled_sides
from headcount.run.arrays import padded
from headcount.statistics.max_t import Ratio, ratio

WINDOW = 8  # the largest offset with a figure of its own
OFFSETS = tuple(range(-WINDOW - 1, WINDOW + 2))  # the first and the last: all that are farther
MEASURES = ("distance", "entropy", "confidence", "rest", "punctuation", "rare", "rarest")
RARE = 0.1  # the share of the training text that is made of rare words
SIDES = {"encoder": ("source", "source"), "decoder": ("target", "target"), "cross": ("target", "source")}
WHEN: dict[str, When] = {"encoder": "after", "decoder": "after", "cross": "before"}
POSITIONAL = 0.9  # Voita et al. 2019, section 5.1
NEAR = {"previous": -1, "same": 0, "next": 1}
TYPES = {"queries": np.int32, "measures": np.float32, "weight": np.float16, "maxima": np.uint16}


def roles(analysis: Analysis, progress: Progress) -> Arrays:
    """Attention of each head between pieces on the test sentences, as sums over the queries of each sentence.

    queries [sentence, kind]: their number. measures [sentence, head, measure]: see `measured`. weight, maxima
    [sentence, head, offset]: share of attention at each offset, and the number of queries whose maximum is there; valid
    [head, offset]: the maxima on the validation sentences. Also head, kind (of each head), measure, offset, the names.
    """
    train = {
        side: Counter(word for text in analysis.splits["train"][side] for word in words(normalise(text)))
        for side in SIDES["cross"]
    }
    valid = _measured(analysis, analysis.own_valid, train, progress)["maxima"].sum(axis=0, dtype=np.int64)
    heads = analysis.heads
    names = {"head": heads.labels, "kind": np.array([head.kind for head in heads.names])}
    names |= {"measure": np.array(MEASURES), "offset": np.array(OFFSETS)}
    return _measured(analysis, analysis.own_test, train, progress) | {"valid": valid} | names


ROLES = Part(
    "roles",
    "attention of each head",
    roles,
    steps=lambda analysis: len(analysis.own_test) + len(analysis.own_valid),
    version=2,
)


def _measured(
    analysis: Analysis, sentences: EvaluationSet, train: Mapping[str, Mapping[str, int]], progress: Progress
) -> Arrays:
    """The arrays of one split that have a value for each sentence; train: the words of the training text, by side."""
    spelled, marks, parts = spelled_sides(analysis, sentences), {}, []
    for side, frequencies in train.items():
        most = rare_words(frequencies)
        marks[side] = [_marks(text, frequencies, most) for text in spelled[side].words]
    for batch in observed(analysis.heads, sentences.source, sentences.target):
        own: dict[str, tuple[Tensor, Tensor]] = {}
        for side, each in spelled.items():
            marked = torch.from_numpy(padded([marks[side][row] for row in batch.rows.tolist()]))
            of_piece = each.batch(batch.rows).to(batch.source.device)
            own[side] = of_piece.sum(dim=2).gt(0).float(), of_piece @ marked.to(of_piece.device)
        parts.append((batch.rows, {name: each.cpu().numpy() for name, each in _batch(batch, own).items()}))
        progress(len(batch.rows))
    return {name: each.astype(TYPES[name]) for name, each in in_order(parts).items()}


def _marks(text: Sequence[str], frequencies: Mapping[str, int], most: int) -> NDArray[np.float32]:
    """Whether each word is punctuation, is rare, is the rarest of the sentence, [word, 3]; most: the frequency of a
    rare word at most."""
    counts = [frequencies.get(word, 0) for word in text]
    marks = [
        (not any(map(str.isalnum, word)), count <= most, count == min(counts))
        for word, count in zip(text, counts, strict=True)
    ]
    return np.array(marks, dtype=np.float32).reshape(-1, 3)


def rare_words(frequencies: Mapping[str, int], share: float = RARE) -> int:
    """The largest frequency of a rare word: all words of at most this frequency are at most this share of the text; 0
    if there is none."""
    counts = np.sort(np.fromiter(frequencies.values(), np.int64))
    rare = [count for count in np.unique(counts) if counts[counts <= count].sum() <= share * counts.sum()]
    return int(max(rare, default=0))


def _batch(batch: Observed, sides: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    """The arrays of a batch. sides: by side whether a piece is a query [batch, piece], and its marks [batch, piece,
    mark]."""
    parts = []
    for kind in KINDS:
        asked, marks = sides[SIDES[kind][0]][0], sides[SIDES[kind][1]][1]
        share = batch.pieces(kind, WHEN[kind])[0]
        largest = torch.zeros_like(share).scatter_(-1, share.argmax(dim=-1, keepdim=True), 1.0)
        profiles = (by_offset(each * asked[:, None, :, None]) for each in (share, largest))
        parts.append((asked.sum(dim=1, keepdim=True), measured(share, asked, marks), *profiles))
    return {name: torch.cat(each, dim=1) for name, each in zip(TYPES, zip(*parts, strict=True), strict=True)}


def measured(share: Tensor, asked: Tensor, marks: Tensor) -> Tensor:
    """Measures of each head, summed over the queries of a sentence, [batch, head, measure].

    share [batch, head, query, key]: what it lacks of 1 is on the end of the source or the beginning of the target.
    distance: positions between query and key times the share, ends left out. entropy: in nats. confidence: the largest
    share but for ends (Voita et al. 2019, section 4). rest: the share on the end or beginning. punctuation, rare: the
    share there. rarest: whether the maximum is the rarest word. asked [batch, query]: 1 for a query that counts. marks
    [batch, key, mark].
    """
    rest = 1 - share.sum(dim=-1)
    place = torch.arange(max(share.shape[-2:]), device=share.device)
    distance = (place[: share.shape[-2], None] - place[: share.shape[-1]]).abs()
    whole = torch.cat([share, rest[..., None].clamp_min(0)], dim=-1)
    largest = share.max(dim=-1)
    on = torch.einsum("bhqk,bkm->mbhq", share, marks[..., :2])
    rarest = marks[:, None, :, 2].expand(*share.shape[:2], -1).gather(-1, largest.indices)
    columns = [(share * distance).sum(dim=-1), torch.special.entr(whole).sum(dim=-1), largest.values, rest, *on, rarest]
    return torch.einsum("mbhq,bq->bhm", torch.stack(columns), asked)


def by_offset(share: Tensor) -> Tensor:
    """Sums [batch, head, offset] over the diagonals of [batch, head, query, key]."""
    near = [share.diagonal(offset, dim1=-2, dim2=-1).sum(dim=-1) for offset in OFFSETS[1:-1]]
    below, above = share.tril(OFFSETS[0]).sum(dim=(-2, -1)), share.triu(OFFSETS[-1]).sum(dim=(-2, -1))
    return torch.stack([below, *near, above], dim=-1)


def role_figures(arrays: Mapping[str, NDArray]) -> dict[str, Ratio]:
    """The figures of all heads from the arrays of `roles`, [head], with intervals by bootstrap over sentences.

    "positional": the share of maxima at the fixed offset with the most on the validation sentences. "previous", "same",
    "next": the share of attention at -1, 0, 1. "distance": mean of the attention but for ends. "entropy": in nats. And
    the means over queries of the other `MEASURES`.
    """
    kinds = [KINDS.index(kind) for kind in arrays["kind"]]
    queries = arrays["queries"][:, kinds].astype(np.float64)
    measures = dict(zip(MEASURES, np.moveaxis(arrays["measures"].astype(np.float64), -1, 0), strict=True))
    _, maxima = _fixed_offset(arrays)
    at = {name: arrays["weight"][:, :, OFFSETS.index(offset)] for name, offset in NEAR.items()}
    figures = {name: ratio(sums, queries) for name, sums in {"positional": maxima, **at, **measures}.items()}
    return figures | {"distance": ratio(measures["distance"], queries - measures["rest"])}


def _fixed_offset(arrays: Mapping[str, NDArray]) -> tuple[NDArray[np.int64], NDArray]:
    """The place in `OFFSETS` with the most maxima of each head on validation sentences, [head], and the maxima there on
    each test sentence, [sentence, head]."""
    best = arrays["valid"][:, 1:-1].argmax(axis=-1) + 1
    return best, arrays["maxima"][:, np.arange(len(best)), best]


def positional_heads(arrays: Mapping[str, NDArray]) -> dict[str, int]:
    """The offset of each head with 90 % of its maxima there, any offset of the window; the other heads are left out.
    Voita et al. 2019, section 5.1, define it for the encoder, where the offset is -1 or +1 in practice."""
    best, maxima = _fixed_offset(arrays)
    queries = arrays["queries"].sum(axis=0, dtype=np.int64)[[KINDS.index(kind) for kind in arrays["kind"]]]
    sure = maxima.sum(axis=0, dtype=np.int64) >= POSITIONAL * queries
    return {str(arrays["head"][n]): int(arrays["offset"][best[n]]) for n in np.flatnonzero(sure & (queries > 0))}
