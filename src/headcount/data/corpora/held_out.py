"""Held-out splits: validation and test pairs taken from the training text."""

import hashlib
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset

from headcount.data.corpora.corpus import SIDES, in_memory, pairs_of
from headcount.data.tokenizer import normalise
from headcount.errors import InputError

CHUNK = 2**14  # pairs hashed at once

logger = logging.getLogger(__name__)


class HeldOut:
    """Pairs of train that become the splits which a corpus lacks, in groups of equal source.

    Text is compared as the tokenizer reads it (`normalise`). Sources are ranked by hash(seed, source); the first `test`
    become the test set, the next `valid` the validation set. The choice depends only on the set of distinct sources,
    not on their order. All pairs with a held-out source leave train; the pair with the smallest hash is held out. A
    pair without text on a side stays in train.

    settings: `valid` and `test`, the number of pairs of each (None for a split that the corpus has), and `seed`; None
    for nothing. max_pairs: of train only the first pairs are read, this many; None for all.
    Raises ValueError for other settings, or numbers that are not allowed.
    """

    def __init__(self, settings: Mapping[str, Any] | None, max_pairs: int | None) -> None:
        given = {"seed": 1} | dict(settings or {})
        for name, size in given.items():
            least, off = (-np.inf, ()) if name == "seed" else (1, (None,))
            if size not in off and (type(size) is not int or size < least):
                raise ValueError(
                    f"data.held_out.{name}={size}: must be a whole number, of pairs 1 or more, such as 2000, or null "
                    "for a split that the corpus has"
                )
        # Test before valid, so that another size of valid does not change the test split.
        self.sizes = {split: given[split] for split in ("test", "valid") if given.get(split)}
        self.seed, self.max_pairs = given["seed"], max_pairs

    @property
    def settings(self) -> dict[str, Any]:
        """The settings for a fingerprint, with the name of the rule; empty values where they change nothing."""
        held_out = ["by source", self.sizes, self.seed] if self.sizes else []
        return {"held_out": held_out, "max_pairs": self.max_pairs}

    def cut(self, splits: Mapping[str, Dataset]) -> dict[str, Dataset]:
        """The splits, with train cut to `max_pairs` and divided. Raises InputError if train has too few pairs."""
        train = splits["train"]
        if self.max_pairs is not None:
            train = train.select(range(min(self.max_pairs, len(train))))
        if not self.sizes:
            return {**splits, "train": train}
        table, wanted = train.with_format("arrow")[:], sum(self.sizes.values())
        keys = np.concatenate([self._keys(*_texts(rows)) for rows in table.to_batches(CHUNK)])
        smallest = np.unique(keys[keys != b""])[:wanted]
        leaves = (keys != b"") & (keys <= smallest[-1]) if len(smallest) else np.zeros(len(keys), bool)
        if leaves.all() or len(smallest) < wanted:
            asked = " and ".join(f"data.held_out.{split}={size}" for split, size in self.sizes.items())
            different = "no more" if len(smallest) == wanted else f"{len(smallest):,}"
            raise InputError(
                f"{asked}: too much for the train split, which has {len(keys):,} pairs in all, and of different "
                f"sources in pairs with text on both sides {different}; give less"
            )
        if (leaving := int(leaves.sum())) > wanted:
            logger.info(
                "%s pairs are held out; %s further pairs with the same sources leave train", wanted, leaving - wanted
            )
        best: dict[bytes, tuple[bytes, str, str]] = {}  # of each source, the pair with the smallest hash
        for key, source, target in zip(keys[leaves], *_texts(table.filter(pa.array(leaves))), strict=True):
            pair = self._hash(f"{normalise(source)}\n{normalise(target)}"), source, target
            best[key] = min(best.get(key, pair), pair)
        chosen = pairs_of(*([best[key][side] for key in smallest] for side in (1, 2)))
        parts, start = {}, 0
        for split, size in self.sizes.items():
            parts[split] = chosen.select(range(start, start + size))
            start += size
        return {**splits, "train": in_memory(table.filter(pa.array(~leaves))), **parts}

    def _keys(self, sources: list[str], targets: list[str]) -> np.ndarray:
        """The hash of each source; empty for a pair without text on a side."""
        pairs = zip(map(normalise, sources), map(normalise, targets), strict=True)
        return np.array([self._hash(source) if source and target else b"" for source, target in pairs], "S16")

    def _hash(self, text: str) -> bytes:
        return hashlib.blake2b(f"{self.seed}\n{text}".encode(), digest_size=16).digest()


def _texts(table: pa.Table | pa.RecordBatch) -> list[list[str]]:
    return [[text or "" for text in table[side].to_pylist()] for side in SIDES]
