"""Checks of the vocabulary against the text: unknown characters, pieces that are never or hardly ever used, domains."""

from collections.abc import Mapping, Sequence

import numpy as np

from headcount.doctor.check import Measured, least, most
from headcount.doctor.evidence import Evidence, Pairs

FIRST_PIECE = 260  # 4 special pieces and 256 bytes come before


def spelled(evidence: Evidence) -> Measured | None:
    """Pieces of valid and test that are bytes, which spell the characters that the vocabulary lacks."""
    return most(
        {
            f"{side} of {split}": float(np.mean(pieces < FIRST_PIECE)) if len(pieces) else 0.0
            for split in evidence.held_out
            for side, pieces in _flat(evidence, split).items()
        }
    )


def unused(evidence: Evidence) -> Measured | None:
    """Pieces that train never has."""
    return most({name: float(np.mean(counts == 0)) for name, counts in _counts(evidence).items()})


def occurrences(evidence: Evidence) -> Measured | None:
    """Occurrences in train of the median piece."""
    return least({name: float(np.median(counts)) for name, counts in _counts(evidence).items()})


def _counts(evidence: Evidence) -> dict[str, np.ndarray]:
    """Occurrences in train of each piece that is not special and no byte, by the name of the vocabulary."""
    if not evidence.splits or evidence.tokenizer is None:
        return {}
    source, target = _flat(evidence, "train").values()
    tokenizer = evidence.tokenizer
    if tokenizer.source is tokenizer.target:
        groups = {"": (np.concatenate([source, target]), tokenizer.vocab_size)}
    else:
        groups = {"source": (source, tokenizer.source.vocab_size), "target": (target, tokenizer.target.vocab_size)}
    # Of a large corpus, a part is counted.
    scale = evidence.kept / max(len(evidence.splits["train"].source), 1)
    return {name: scale * np.bincount(ids, minlength=size)[FIRST_PIECE:] for name, (ids, size) in groups.items()}


def _flat(evidence: Evidence, split: str) -> dict[str, np.ndarray]:
    """All pieces of a split, by side."""
    nothing = np.zeros(0, dtype=np.int64)
    return {
        side: np.concatenate([nothing, *sentences])
        for side, sentences in zip(Pairs._fields, evidence.pieces[split], strict=True)
    }


def distance(evidence: Evidence) -> Measured | None:
    """Divergence of valid and test from as many sentences of train."""
    return _farthest(evidence, {split: (split, "train") for split in evidence.held_out})


def between(evidence: Evidence) -> Measured | None:
    """Divergence of valid and test sets."""
    if "valid" not in evidence.splits:
        return None
    others = (split for split in evidence.held_out if split != "valid")
    return _farthest(evidence, {f"valid and {split}": ("valid", split) for split in others})


def _farthest(evidence: Evidence, pairs: Mapping[str, tuple[str, str]]) -> Measured | None:
    if not evidence.splits or evidence.tokenizer is None:
        return None
    return most(
        {
            f"{side}, {name}": divergence(*(evidence.pieces[split][number] for split in splits))
            for name, splits in pairs.items()
            for number, side in enumerate(Pairs._fields)
        }
    )


def divergence(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> float:
    """Jensen-Shannon divergence of the pieces of two texts, in nats, less that of the same sentences mixed at random:
    0 for texts of one kind. Of the longer text, as many sentences as the shorter one has, evenly spaced."""
    size = min(len(one), len(other))
    both = [text[row] for text in (one, other) for row in np.linspace(0, len(text) - 1, size, dtype=int)]
    mixed = np.random.default_rng(0).permutation(2 * size)
    return _jensen_shannon(both, np.arange(2 * size)) - _jensen_shannon(both, mixed)


def _jensen_shannon(sentences: Sequence[np.ndarray], order: np.ndarray) -> float:
    """Of the first half of the sentences, in this order, from the second half."""
    halves = [np.concatenate([sentences[row] for row in rows]) for rows in np.array_split(order, 2)]
    vocabulary = 1 + max(int(half.max(initial=0)) for half in halves)
    shares = [np.bincount(half, minlength=vocabulary) / max(len(half), 1) for half in halves]
    mean = sum(shares) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(sum(np.nansum(share * np.log(share / mean)) for share in shares) / 2)
