"""Held-out splits: validation and test pairs taken from the training text."""

import hashlib
import logging
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headcount.data.corpora.corpus import Pairs, pair_table
from headcount.data.tokenizer import normalise
from headcount.errors import InputError

CHUNK = 2**14  # pairs read at once

logger = logging.getLogger(__name__)


class HeldOut:
    """Pairs of train that become the splits which a corpus lacks, in groups of equal source.

    Text is compared as the tokenizer reads it (`normalise`). Every source that has a translation gets a hash of itself
    and the seed, and the sources with the smallest hashes are held out. So neither order nor repetition nor the way of
    reading changes the held-out pairs. All pairs with a held-out source leave train, so that no two splits share a
    source. One pair of each source is held out, the pair with the smallest hash, in the order of the sources' hashes.

    settings: `valid` and `test`, the number of pairs of each (None for a split that the corpus has), and `seed`; None
    for nothing. max_pairs: of train only the first pairs are read, this many; None for all.
    Raises ValueError for other settings, or numbers that are not allowed.
    """

    def __init__(self, settings: Mapping[str, Any] | None, max_pairs: int | None) -> None:
        known = ("valid", "test", "seed")
        given: dict[str, Any] = dict(settings or {"seed": 1})
        if unknown := [name for name in given if name not in known]:
            raise ValueError(f"data.held_out.{unknown[0]}: no such setting; there are {', '.join(known)}")
        # Test before valid, so that another size of valid does not change the test split.
        self.sizes: dict[str, int] = {
            split: given[split] for split in ("test", "valid") if given.get(split) is not None
        }
        for name, size in self.sizes.items():
            if type(size) is not int or size < 1:
                raise ValueError(
                    f"data.held_out.{name}={size}: must be a whole number of pairs, 1 or more, such as 2000, or "
                    "null for a split that the corpus has"
                )
        self.seed = given.get("seed")
        if type(self.seed) is not int:
            raise ValueError(f"data.held_out.seed={self.seed}: must be a whole number")
        if max_pairs is not None and max_pairs < 1:
            raise ValueError(f"data.max_pairs={max_pairs} leaves no pair of train; give 1 or more, or null for all")
        self.max_pairs = max_pairs

    @property
    def settings(self) -> dict[str, Any]:
        """The settings for a fingerprint, with the name of the rule; empty values where they change nothing."""
        held_out = ["by source", self.sizes, self.seed] if self.sizes else []
        return {"held_out": held_out, "max_pairs": self.max_pairs}

    def cut(self, splits: Mapping[str, Pairs]) -> dict[str, Pairs]:
        """The splits, with train cut to `max_pairs` and divided. Reads train once; only held-out pairs are in memory.

        Raises InputError if train has too few pairs, and the errors of reading it.
        """
        whole = first(splits["train"], self.max_pairs)
        if not self.sizes:
            return {**splits, "train": whole}
        wanted = sum(self.sizes.values())
        groups, rows = self._smallest(whole, wanted)
        leaving = sum(group.rows for group in groups)
        if leaving == rows or len(groups) < wanted:
            asked = " and ".join(f"data.held_out.{split}={size}" for split, size in self.sizes.items())
            different = "no more" if len(groups) == wanted else f"{len(groups):,}"
            raise InputError(
                f"{asked}: too much for the train split, which has {rows:,} pairs in all, and of different sources in "
                f"pairs with text on both sides {different}; give less"
            )
        if leaving > wanted:
            logger.info(
                "%s pairs are held out; %s further pairs with the same sources leave train", wanted, leaving - wanted
            )
        chosen = pair_table(*(pa.array([group.best[side] for group in groups], pa.string()) for side in (1, 2)))
        parts, start = {}, 0
        for split, size in self.sizes.items():
            parts[split] = _pairs_of(chosen.slice(start, size))
            start += size
        sources = frozenset(normalise(source) for source in chosen["source"].to_pylist())
        train = Pairs(rows - leaving, lambda count: _without(whole, sources, count))
        return {**splits, "train": train, **parts}

    def _smallest(self, pairs: Pairs, count: int) -> tuple[list["SourceGroup"], int]:
        """The `count` groups of smallest hash, in that order, and the number of all rows."""
        groups: dict[bytes, SourceGroup] = {}
        bound, rows = b"\xff" * 16, 0
        for table in pairs.iter(CHUNK):
            rows += table.num_rows
            for source, target in zip(table["source"].to_pylist(), table["target"].to_pylist(), strict=True):
                key = self._hash(normal := normalise(source))
                if key > bound or not normal or not (translation := normalise(target)):
                    continue
                groups.setdefault(key, SourceGroup()).add(self._hash(f"{normal}\n{translation}"), source, target)
            if len(groups) > 2 * count:  # not at every chunk, since sorting is slow
                groups = {key: groups[key] for key in sorted(groups)[:count]}
                bound = max(groups)
        return [groups[key] for key in sorted(groups)[:count]], rows

    def _hash(self, text: str) -> bytes:
        return hashlib.blake2b(f"{self.seed}\n{text}".encode(), digest_size=16).digest()


@dataclass
class SourceGroup:
    """The pairs of one source. rows: their number. best: the pair to hold out, as (hash, source, target)."""

    rows: int = 0
    best: tuple[bytes, str, str] = (b"\xff" * 17, "", "")  # above every hash

    def add(self, key: bytes, source: str, target: str) -> None:
        self.rows += 1
        self.best = min(self.best, (key, source, target))


def _without(pairs: Pairs, sources: Container[str], rows: int) -> Iterator[pa.Table]:
    """The pairs with none of these normalised sources, and those with text on one side only."""
    for table in pairs.iter(rows):
        leaves = [
            normalise(source) in sources and bool(normalise(target))
            for source, target in zip(table["source"].to_pylist(), table["target"].to_pylist(), strict=True)
        ]
        yield table.filter(pa.array([not each for each in leaves])) if any(leaves) else table


def _pairs_of(table: pa.Table) -> Pairs:
    return Pairs(table.num_rows, lambda rows: (table.slice(start, rows) for start in range(0, len(table), rows)))


def first(pairs: Pairs, count: int | None) -> Pairs:
    """The first `count` pairs, or fewer if there are fewer; None for all."""
    if count is None:
        return pairs

    def tables(rows: int) -> Iterator[pa.Table]:
        left = count
        for table in pairs.iter(min(rows, count)):  # reads no row that is not used
            yield table.slice(0, left)
            left -= table.num_rows
            if left <= 0:
                return

    return Pairs(None if pairs.num_rows is None else min(pairs.num_rows, count), tables)
