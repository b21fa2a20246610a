"""Held-out splits: validation and test pairs taken from the training text."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasets import Dataset

from headcount.data.corpora.corpus import SIDES, pairs_of
from headcount.data.tokenizer import normalise
from headcount.errors import InputError
from headcount.settings import Positive, check

CHUNK = 2**14  # pairs hashed at once


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Numbers of pairs, None for a split that the corpus has; seed: of the choice."""

    valid: Positive | None = None
    test: Positive | None = None
    seed: int = 1


class HeldOut:
    """Pairs of train that become the splits which a corpus lacks, in groups of equal source.

    Text is compared as the tokenizer reads it (`normalise`). Sources are ranked by hash(seed, source); the first `test`
    become the test set, the next `valid` the validation set. The choice depends only on the set of distinct sources,
    not on their order. All pairs with a held-out source leave train; the pair with the smallest hash is held out. A
    pair without text on a side stays in train.

    settings: see `Settings`; None for nothing. max_pairs: of train only the first pairs are read, this many; None for
    all. Raises InputError with a line for each setting that is wrong.
    """

    def __init__(self, settings: Mapping[str, Any] | None, max_pairs: int | None) -> None:
        check(Settings, settings or {}, "data.held_out.")
        given = Settings(**(settings or {}))
        # Test before valid, so that another size of valid does not change the test split.
        self.sizes = {split: size for split, size in {"test": given.test, "valid": given.valid}.items() if size}
        self.seed, self.max_pairs = given.seed, max_pairs

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
        keys = np.concatenate([self._keys(*(rows[side] for side in SIDES)) for rows in train.iter(CHUNK)])
        different, wanted = np.unique(keys[keys != b""]), sum(self.sizes.values())
        smallest = different[:wanted]
        leaves = np.isin(keys, smallest)
        if leaves.all() or len(smallest) < wanted:
            asked = " and ".join(f"data.held_out.{split}={size}" for split, size in self.sizes.items())
            raise InputError(
                f"{asked}: too much for the train split, which has {len(keys):,} pairs, and in those with text on both "
                f"sides {len(different):,} different sources; give less, since a pair must stay"
            )
        best: dict[bytes, tuple[bytes, str, str]] = {}  # of each source, the pair with the smallest hash
        held_out = train[np.flatnonzero(leaves)]
        for key, source, target in zip(keys[leaves], *(held_out[side] for side in SIDES), strict=True):
            pair = self._hash(f"{normalise(source)}\n{normalise(target)}"), source, target
            best[key] = min(best.get(key, pair), pair)
        parts, start = {"train": train.select(np.flatnonzero(~leaves))}, 0
        for split, size in self.sizes.items():
            parts[split] = pairs_of(*([best[key][side] for key in smallest[start : start + size]] for side in (1, 2)))
            start += size
        return {**splits, **parts}

    def _keys(self, sources: list[str | None], targets: list[str | None]) -> np.ndarray:
        """The hash of each source; empty for a pair without text on a side."""
        normal = ([normalise(text or "") for text in side] for side in (sources, targets))
        pairs = zip(*normal, strict=True)
        return np.array([self._hash(source) if source and target else b"" for source, target in pairs], "S16")

    def _hash(self, text: str) -> bytes:
        return hashlib.blake2b(f"{self.seed}\n{text}".encode(), digest_size=16).digest()
