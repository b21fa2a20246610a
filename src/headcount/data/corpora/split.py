"""A part of the pairs: the first of them, or some held out from train."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.data.corpora.pairs import Pairs, pair_table
from headcount.errors import InputError

CHUNK = 2**14  # pairs looked at at once


class HeldOut:
    """Pairs taken from train for the splits that a corpus lacks.

    Of all distinct pairs with text on both sides, those with the smallest hashes go: the hash depends on the pair and
    the seed alone, so neither order nor repetition nor the way of reading changes what is held out, and all copies of a
    pair leave train together. Held out, each stands once, in the order of the hashes.

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
        """What changes the text, empty where nothing is held out."""
        return [self.sizes, self.seed] if self.sizes else []

    def cut(self, splits: Mapping[str, Pairs]) -> dict[str, Pairs]:
        """The splits with train divided. Goes through train once, and keeps in memory only what is held out.

        Raises:
            InputError: train has too few pairs; or what reading it raises.
        """
        if not self.sizes:
            return dict(splits)
        wanted = sum(self.sizes.values())
        chosen, rows, copies = self._smallest(splits["train"], wanted)
        if rows - copies < 1 or len(chosen) < wanted:
            asked = " and ".join(f"data.held_out.{split}={size}" for split, size in self.sizes.items())
            raise InputError(
                f"{asked}: too much for the train split, which has {rows:,} pairs in all, and of different ones with "
                f"text on both sides {'no more' if len(chosen) == wanted else f'{len(chosen):,}'}; give less"
            )
        parts, start = {}, 0
        for split, size in self.sizes.items():
            parts[split] = _pairs_of(chosen.slice(start, size))
            start += size
        train = Pairs(rows - copies, lambda count: _without(splits["train"], chosen, count))
        return {**splits, "train": train, **parts}

    def _smallest(self, pairs: Pairs, count: int) -> tuple[pa.Table, int, int]:
        """The `count` pairs of smallest hash, the number of all rows, and that of the rows that are one of these."""
        found: dict[bytes, list[Any]] = {}  # hash -> source, target, copies
        bound, rows = b"\xff" * 16, 0
        start = f"{self.seed}\n"
        for table in pairs.iter(CHUNK):
            rows += table.num_rows
            for source, target in zip(table["source"].to_pylist(), table["target"].to_pylist(), strict=True):
                key = hashlib.blake2b(f"{start}{source}\n{target}".encode(), digest_size=16).digest()
                if key > bound or not source.strip() or not target.strip():
                    continue
                found.setdefault(key, [source, target, 0])[2] += 1
            found = {key: found[key] for key in sorted(found)[:count]}
            if len(found) == count:
                bound = max(found)
        sources, targets = ([entry[side] for entry in found.values()] for side in (0, 1))
        chosen = pair_table(pa.array(sources, pa.string()), pa.array(targets, pa.string()))
        return chosen, rows, sum(entry[2] for entry in found.values())


def _without(pairs: Pairs, held_out: pa.Table, rows: int) -> Iterator[pa.Table]:
    """The pairs that are none of `held_out`."""
    known = set(zip(held_out["source"].to_pylist(), held_out["target"].to_pylist(), strict=True))
    for table in pairs.iter(rows):
        maybe = [pc.is_in(table[side], held_out[side].combine_chunks()) for side in ("source", "target")]
        stays = np.ones(table.num_rows, dtype=bool)
        for row in np.flatnonzero(pc.and_(*maybe).to_numpy()):
            stays[row] = (table["source"][row].as_py(), table["target"][row].as_py()) not in known
        yield table if stays.all() else table.filter(pa.array(stays))


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
