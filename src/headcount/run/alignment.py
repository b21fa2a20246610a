"""Word alignment of translations by cross-attention: which source word each target word comes from."""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from headcount.data.tokenizer import BOS, EOS, PAD, SPACE_MARK, Tokenizer
from headcount.errors import InputError
from headcount.files import show
from headcount.model.encoder_decoder import EncoderDecoder
from headcount.run.arrays import read_arrays
from headcount.run.opened import Run, weights_digest

logger = logging.getLogger(__name__)

AT_ONCE = 64  # sentences, of similar length,
MOST_WEIGHTS = 2**26  # or fewer, so that their attention weights in all layers and heads are no more

Links = list[tuple[int, int]]
"""Words of source and target, from 0, that are translations of each other."""

Aligner = Callable[[Sequence[str], Sequence[str]], list[Links]]
"""Links between the words of sources and their translations, one for each target word, in its order; none where either
is empty."""


class AlignmentHead(NamedTuple):
    """A cross head: its layer and its number there, both counted from 1. right: the share of target words of the
    validation set that it links to an aligned source word."""

    layer: int
    head: int
    right: float

    def __str__(self) -> str:
        return f"cross{self.layer}.{self.head}"


def alignment_head(run: Run) -> AlignmentHead | None:
    """The cross head with the most right links by weight, at the position that predicts the word: what other engines
    return. None for a run whose heads were not measured with these weights, or whose corpus has no gold alignment.

    Raises InputError for a damaged file of results, or one of other heads.
    """
    path = run.directory / "heads" / "gold.npz"
    arrays = read_arrays(path)
    if arrays is None or "valid.right" not in arrays:
        return None
    counts = run.model.head_counts.get("cross_heads", [])
    cross = [(layer, head) for layer, count in enumerate(counts, start=1) for head in range(1, count + 1)]
    view, when = (arrays[name].tolist().index(wanted) for name, wanted in (("view", "weight"), ("when", "before")))
    right = arrays["valid.right"][:, view, :, when].sum(axis=0)
    if len(right) != len(cross):
        raise InputError(f"{path}: is of other heads than the run has; remove it, and measure the heads again")
    if str(arrays.get("weights")) != weights_digest(run.model, torch.bfloat16):
        logger.warning(
            "the head that aligns best is unknown: %s has other weights or an older form; heads parts=[gold] measures "
            "it again",
            show(path),
        )
        return None
    best = int(right.argmax())
    return AlignmentHead(*cross[best], float(right[best] / arrays["valid.targets"].sum())) if cross else None


def pharaoh(links: Links) -> str:
    """Links in the format of Pharaoh and Moses: `0-0 1-2`, source first."""
    return " ".join(f"{source}-{target}" for source, target in links)


def last_cross_layer(model: EncoderDecoder) -> int | None:
    """The last layer with heads of cross-attention, from 1; None for a model without any."""
    counts = model.head_counts.get("cross_heads", [])
    return max((layer for layer, count in enumerate(counts, start=1) if count), default=None)


def aligner(run: Run) -> Aligner:
    """Alignment with a run; of an ensemble, with its first run.

    The source word is the one with the largest share of the attention at the positions that predict the word: of the
    `alignment_head`, or the mean of all cross heads of the last layer that has some. Words are those between spaces.
    Raises InputError for a model without cross-attention, or one that does not read the source.
    """
    last = last_cross_layer(run.model)
    if run.translator.hide_source or last is None:
        raise InputError(f"alignments: {run.directory} has no attention to the source, so its words cannot be aligned")
    best = alignment_head(run)
    layer, heads = (last, slice(None)) if best is None else (best.layer, slice(best.head - 1, best.head))
    return partial(_aligned, run, layer, heads)


@torch.inference_mode()
def _aligned(run: Run, layer: int, heads: slice, sources: Sequence[str], targets: Sequence[str]) -> list[Links]:
    source, target = run.tokenizer.source, run.tokenizer.target
    pairs = list(zip(source.encode(list(sources)), target.encode(list(targets)), strict=True))
    found: list[Links] = [[] for _ in pairs]
    heads_in_all = sum(map(sum, run.model.head_counts.values()))
    for rows in _batches(pairs, heads_in_all):
        ids, before = _padded([[*pairs[row][0], EOS] for row in rows]), _padded([[BOS, *pairs[row][1]] for row in rows])
        given = ids.to(run.model.device)
        cross = run.model.attention_weights(given, given != PAD, before.to(run.model.device)).cross
        weights = cross[layer - 1][:, heads].mean(dim=1)
        for row, each in zip(rows, weights.float().cpu(), strict=True):
            words = word_of(source, pairs[row][0]), word_of(target, pairs[row][1])
            found[row] = _links(each[: len(words[1]), : len(words[0])], *words)
    return found


def word_of(tokenizer: Tokenizer, ids: Sequence[int]) -> Tensor:
    """The word that each piece belongs to, from 0."""
    starts = [tokenizer.vocabulary[number].startswith(SPACE_MARK) for number in ids]
    return (torch.tensor(starts, dtype=torch.int64).cumsum(0) - 1).clamp_min(0)


def _links(weights: Tensor, source: Tensor, target: Tensor) -> Links:
    words = torch.zeros(int(target.max()) + 1, int(source.max()) + 1)
    words.index_put_((target[:, None], source[None, :]), weights, accumulate=True)
    return [(int(word), number) for number, word in enumerate(words.argmax(dim=1))]


def _batches(pairs: Sequence[tuple[Sequence[int], Sequence[int]]], heads: int) -> Iterator[list[int]]:
    """Rows of pairs without an empty side, the longest first."""
    sizes = {row: (1 + max(map(len, pair))) ** 2 * heads for row, pair in enumerate(pairs) if all(pair)}
    rows = sorted(sizes, key=sizes.__getitem__, reverse=True)
    start = 0
    while start < len(rows):
        end = start + max(1, min(AT_ONCE, MOST_WEIGHTS // sizes[rows[start]]))
        yield rows[start:end]
        start = end


def _padded(rows: Sequence[Sequence[int]]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])
