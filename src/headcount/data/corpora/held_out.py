"""A part of the pairs: the first of them, or some held out from train."""

import hashlib
import logging
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headcount.data.corpora.corpus import Pairs, pair_table
from headcount.data.tokenizer import normalise
from headcount.errors import InputError

CHUNK = 2**14  # pairs looked at at once

log = logging.getLogger(__name__)


class HeldOut:
    """Pairs taken from train for the splits that a corpus lacks, by whole groups of equal source.

    Text is compared as the tokenizer reads it (`normalise`). Of all sources that have a translation, those with the
    smallest hashes go: the hash depends on the source and the seed alone, so neither order nor repetition nor the way
    of reading changes what is held out. All pairs with such a source leave train together, so that no two splits share
    a source. One pair of each, that with the smallest hash, is held out, in the order of the sources' hashes.

    Args:
        settings: `valid` and `test`, the number of pairs each (None for a split that the corpus has), and `seed`.

    Raises:
        ValueError: other settings, or numbers that cannot be.
    """

    def __init__(self, settings: Mapping[str, Any] | None) -> None:
        known = {"valid": None, "test": None, "seed": 1}
        given = known | dict(settings or {})
        if unknown := [name for name in given if name not in known]:
            raise ValueError(f"data.held_out.{unknown[0]}: no such setting; there are {', '.join(known)}")
        for name in ("valid", "test"):
            if given[name] is not None and (type(given[name]) is not int or given[name] < 1):
                raise ValueError(
                    f"data.held_out.{name}={given[name]}: must be a whole number of pairs, 1 or more, such as 2000, or "
                    "null for a split that the corpus has"
                )
        if type(given["seed"]) is not int:
            raise ValueError(f"data.held_out.seed={given['seed']}: must be a whole number")
        self.seed = given["seed"]
        # Test before valid, so that another size of valid leaves it as it is.
        self.sizes: dict[str, int] = {split: given[split] for split in ("test", "valid") if given[split]}

    @property
    def settings(self) -> list[Any]:
        """What changes the text, empty where nothing is held out; it begins with the name of the rule."""
        return ["by source", self.sizes, self.seed] if self.sizes else []

    def cut(self, splits: Mapping[str, Pairs]) -> dict[str, Pairs]:
        """The splits with train divided. Goes through train once, and keeps in memory only what is held out.

        Raises:
            InputError: train has too few pairs; or what reading it raises.
        """
        if not self.sizes:
            return dict(splits)
        wanted = sum(self.sizes.values())
        groups, rows = self._smallest(splits["train"], wanted)
        leaving = sum(group.rows for group in groups)
        if leaving == rows or len(groups) < wanted:
            asked = " and ".join(f"data.held_out.{split}={size}" for split, size in self.sizes.items())
            different = "no more" if len(groups) == wanted else f"{len(groups):,}"
            raise InputError(
                f"{asked}: too much for the train split, which has {rows:,} pairs in all, and of different sources in "
                f"pairs with text on both sides {different}; give less"
            )
        if leaving > wanted:
            log.info(
                "%s pairs are held out; %s further ones with the same sources leave train", wanted, leaving - wanted
            )
        chosen = pair_table(*(pa.array([group.best[side] for group in groups], pa.string()) for side in (1, 2)))
        parts, start = {}, 0
        for split, size in self.sizes.items():
            parts[split] = _pairs_of(chosen.slice(start, size))
            start += size
        sources = frozenset(normalise(source) for source in chosen["source"].to_pylist())
        train = Pairs(rows - leaving, lambda count: _without(splits["train"], sources, count))
        return {**splits, "train": train, **parts}

    def _smallest(self, pairs: Pairs, count: int) -> tuple[list["Group"], int]:
        """The `count` groups of smallest hash, in that order, and the number of all rows."""
        found: dict[bytes, Group] = {}
        bound, rows = b"\xff" * 16, 0
        for table in pairs.iter(CHUNK):
            rows += table.num_rows
            for source, target in zip(table["source"].to_pylist(), table["target"].to_pylist(), strict=True):
                key = self._hash(normal := normalise(source))
                if key > bound or not normal or not (translation := normalise(target)):
                    continue
                found.setdefault(key, Group()).add(self._hash(f"{normal}\n{translation}"), source, target)
            if len(found) > 2 * count:  # not at every chunk: sorting a million takes its time
                found = {key: found[key] for key in sorted(found)[:count]}
                bound = max(found)
        return [found[key] for key in sorted(found)[:count]], rows

    def _hash(self, text: str) -> bytes:
        return hashlib.blake2b(f"{self.seed}\n{text}".encode(), digest_size=16).digest()


@dataclass
class Group:
    """The pairs of one source: how many rows, and of these the one to hold out, as (hash of the pair, its text)."""

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
    """The first `count` pairs, if there are so many; None for all."""
    if count is None:
        return pairs

    def tables(rows: int) -> Iterator[pa.Table]:
        left = count
        for table in pairs.iter(min(rows, count)):  # no more at once than are wanted in all
            yield table.slice(0, left)
            left -= table.num_rows
            if left <= 0:
                return

    return Pairs(None if pairs.num_rows is None else min(pairs.num_rows, count), tables)
