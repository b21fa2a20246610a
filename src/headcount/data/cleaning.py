"""Cleaning of parallel text, and the report of it.

Only the training split is changed. Valid and test are checked and counted, never filtered or rewritten, so that
scores stay comparable (the tokenizer still reads every text in its normalised form).

The text comes in chunks. `Cleaning.check` looks at each pair alone, in any process. `Filter` gets all chunks in order,
and finds duplicates of earlier pairs.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.data.tokenizer import normalise
from headcount.errors import InputError

EMPTY = "empty"
TOO_LONG = "too long"
UNEQUAL = "unequal lengths"
DUPLICATE = "duplicate"
LEAK = "leak"
TOO_MANY_PIECES = "too many pieces"
CHECKED = (EMPTY, TOO_LONG, UNEQUAL, DUPLICATE, LEAK)  # a pair counts under the first
REASONS = (*CHECKED, TOO_MANY_PIECES)
SOURCE_IN_VALID = "source in valid"
TARGET_IN_VALID = "target in valid"
OVERLAP = (SOURCE_IN_VALID, TARGET_IN_VALID)
ROWS = ("read", "normalised", *REASONS, *OVERLAP, "kept")

# Characters for a syllable or a word. Each counts as two, its width in a terminal, so that Chinese, Japanese and Korean
# text is about as long as its translation.
WIDE = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]"
SHORT = 12  # characters up to which lengths are not compared: "OK" is "In Ordnung"


@dataclass(frozen=True)
class CleaningReport:
    """Counts of pairs by split and reason.

    counts: split -> row of the table (see `ROWS`) -> pairs. A pair counts under the first reason that holds. Test sets
    also have the rows of `OVERLAP`: pairs whose source occurs in valid, and pairs of which only the target does.
    tolerated: reasons that were counted in train, but whose pairs were kept. enabled: False if cleaning was off; then
    only the rows "read" and "kept" have a meaning.
    """

    counts: dict[str, dict[str, int]]
    tolerated: tuple[str, ...] = ()
    enabled: bool = True

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "CleaningReport":
        return cls(values["counts"], tuple(values["tolerated"]), values["enabled"])

    def table(self) -> str:
        """A table as plain text: a row a reason, a column a split."""
        rows = [row for row in ROWS if self.enabled or row in ("read", TOO_MANY_PIECES, "kept")]
        cells = [["pairs" if self.enabled else "pairs (cleaning is off)", *self.counts]]
        for row in rows:
            label = f"{row} (kept)" if row in self.tolerated else row
            values = ["-" if _undefined(row, split) else f"{n.get(row, 0):,}" for split, n in self.counts.items()]
            cells.append([label, *values])
        widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
        lines = [
            "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))])
            for line in cells
        ]
        lines.append("Only train is filtered; valid and test are counted and kept whole.")
        if overlapping := [split for split, n in self.counts.items() if any(n.get(row) for row in OVERLAP)]:
            lines.append(
                f"Overlap of valid with {', '.join(overlapping)}: scores there favour what is chosen on valid."
            )
        return "\n".join(lines)

    def require_pairs(self) -> None:
        """Raises InputError, with the main reason, if a split has no pair left."""
        for split, counts in self.counts.items():
            if counts["read"] == 0:
                raise InputError(f"the {split} split of the corpus holds no pairs; give it at least one")
            if counts["kept"] == 0:
                reason = max(REASONS, key=lambda reason: counts.get(reason, 0))
                remedy = "data.max_length" if reason == TOO_MANY_PIECES else "data.cleaning"
                raise InputError(
                    f"no pair of the {split} split is left: {counts['read']} read, {counts.get(reason, 0)} of them "
                    f"dropped as '{reason}'; look at the text, or relax {remedy}"
                )


def _undefined(row: str, split: str) -> bool:
    """Only training pairs can leak into other splits, and only test sets can overlap with valid."""
    return (row == LEAK and split != "train") or (row in OVERLAP and split in ("train", "valid"))


class ForbiddenText(NamedTuple):
    """The normalised text of splits, which train should not contain."""

    source: pa.Array
    target: pa.Array

    @classmethod
    def of(cls, texts: Iterable["CheckResult | ForbiddenText"]) -> "ForbiddenText":
        nothing, texts = pa.array([], pa.string()), list(texts)
        return cls(*(pa.concat_arrays([nothing, *(getattr(each, side) for each in texts)]) for side in cls._fields))

    def counts_in(self, other: "ForbiddenText") -> dict[str, int]:
        """The number of pairs that share their source with `other`, or only their target, by row of the report."""
        sources, targets = (
            pc.and_(pc.is_in(side, side_of_other), pc.not_equal(side, "")).to_numpy(zero_copy_only=False)
            for side, side_of_other in zip(self, other, strict=True)
        )
        return {SOURCE_IN_VALID: int(sources.sum()), TARGET_IN_VALID: int((targets & ~sources).sum())}


class CheckResult(NamedTuple):
    """The result of checking each pair of a chunk alone.

    source, target: normalised text (with cleaning off, the text itself). normalised: bool [pair], whether normalisation
    changed it. reasons: bool [pair, reason], by `CHECKED`; False for `DUPLICATE`. keys: uint64 [pair], equal
    for equal pairs, and for others with a probability of 1 in 10^19; empty with cleaning off.
    """

    source: pa.Array
    target: pa.Array
    normalised: np.ndarray
    reasons: np.ndarray
    keys: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Cleaning:
    """Rules that drop pairs from the training split: `cleaning` in conf/train.yaml. Words are counted by white
    space, lengths in characters, see `WIDE` and `SHORT`."""

    enabled: bool
    max_words: int | None
    max_ratio: float | None
    drop_duplicates: bool
    drop_leaks: bool

    def __post_init__(self) -> None:
        if self.max_words is not None and self.max_words < 1:
            raise ValueError(
                f"data.cleaning.max_words={self.max_words} would drop every pair; give 1 or more, such as 200, or null"
            )
        if self.max_ratio is not None and self.max_ratio < 1:
            raise ValueError(
                f"data.cleaning.max_ratio={self.max_ratio} would drop every pair; give 1 or more, such as 5, or null"
            )

    def check(self, source: pa.Array, target: pa.Array, forbidden: ForbiddenText | None) -> CheckResult:
        """Check each pair alone. forbidden: text that counts as a leak; None for none."""
        reasons = np.zeros((len(source), len(CHECKED)), dtype=bool)
        if not self.enabled:
            return CheckResult(source, target, np.zeros(len(source), bool), reasons, np.empty(0, np.uint64))
        sources, targets = ([normalise(text) for text in side.to_pylist()] for side in (source, target))
        before, (source, target) = (source, target), (pa.array(side, pa.string()) for side in (sources, targets))
        changed = pc.or_(pc.not_equal(before[0], source), pc.not_equal(before[1], target))
        shorter, longer = np.sort([_widths(side) for side in (source, target)], axis=0)
        empty = reasons[:, CHECKED.index(EMPTY)] = shorter == 0
        fine = ~empty
        if self.max_words is not None:
            spaces = np.max([pc.count_substring(side, " ").to_numpy() for side in (source, target)], axis=0)
            reasons[:, CHECKED.index(TOO_LONG)] = fine & (spaces >= self.max_words)
            fine &= spaces < self.max_words
        if self.max_ratio is not None:
            unequal = (longer > SHORT) & (longer > self.max_ratio * shorter)
            reasons[:, CHECKED.index(UNEQUAL)] = fine & unequal
        if forbidden is not None:
            leak = pc.or_(pc.is_in(source, forbidden.source), pc.is_in(target, forbidden.target))
            reasons[:, CHECKED.index(LEAK)] = leak.to_numpy(zero_copy_only=False)
        keys = np.frombuffer(b"".join(map(_key, sources, targets)), np.uint64)
        return CheckResult(source, target, changed.to_numpy(zero_copy_only=False), reasons, keys)

    @property
    def tolerated(self) -> tuple[str, ...]:
        """The reasons that are counted, but drop no pair."""
        if not self.enabled:
            return ()
        return (DUPLICATE,) * (not self.drop_duplicates) + (LEAK,) * (not self.drop_leaks)


class Filter:
    """The filter of one split: it gets the chunks in order, finds duplicates and decides which pairs are kept.

    Its memory grows with the corpus: 8 bytes a pair, for moments twice that.
    filters: False for a split that is only counted, and kept whole.
    """

    def __init__(self, cleaning: Cleaning, filters: bool) -> None:
        self.cleaning = cleaning
        self.filters = filters
        self.reasons: Counter[str] = Counter()
        self.read = self.normalised = self.kept = 0
        self._drops = np.array([reason not in cleaning.tolerated for reason in CHECKED])
        self._seen = SeenKeys()

    def __call__(self, result: CheckResult) -> np.ndarray:
        """bool [pair]: whether the pair is kept. Adds the duplicates to `result.reasons`."""
        reasons = result.reasons
        if len(result.keys):
            reasons[:, CHECKED.index(DUPLICATE)] = ~self._seen.add(result.keys)
        # A pair counts under the first reason that drops it, or else under the first tolerated one.
        drops = reasons & self._drops
        dropped = drops.any(axis=1)
        first = np.where(dropped, drops.argmax(axis=1), reasons.argmax(axis=1))[reasons.any(axis=1)]
        self.reasons.update({CHECKED[reason]: int(n) for reason, n in enumerate(np.bincount(first)) if n})
        kept = ~dropped if self.filters else np.ones(len(reasons), dtype=bool)
        self.read += len(reasons)
        self.normalised += int(result.normalised.sum())
        self.kept += int(kept.sum())
        return kept

    def counts(self) -> dict[str, int]:
        """By row of the report's table."""
        if not self.cleaning.enabled:
            return {"read": self.read, "kept": self.kept}
        return {"read": self.read, "normalised": self.normalised, **self.reasons, "kept": self.kept}


class SeenKeys:
    """A set of uint64 keys in sorted arrays, each over twice as long as the next: few to search, little to merge."""

    def __init__(self) -> None:
        self._sorted: list[np.ndarray] = []

    def add(self, keys: np.ndarray) -> np.ndarray:
        """bool [key]: True at the first occurrence of a key."""
        new = np.zeros(len(keys), dtype=bool)
        new[np.unique(keys, return_index=True)[1]] = True
        for known in self._sorted:
            place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            new &= known[place] != keys
        latest = np.sort(keys[new])
        while self._sorted and len(self._sorted[-1]) <= 2 * len(latest):
            latest = np.concatenate([self._sorted.pop(), latest])
            latest.sort(kind="stable")  # merges two sorted arrays
        if len(latest):
            self._sorted.append(latest)
        return new


def _widths(texts: pa.Array) -> np.ndarray:
    """The characters of every text; those of `WIDE` count twice."""
    lengths: np.ndarray = pc.utf8_length(texts).to_numpy() + pc.count_substring_regex(texts, WIDE).to_numpy()
    return lengths


def _key(source: str, target: str) -> bytes:
    # A line end cannot occur in normalised text, so it separates.
    return hashlib.blake2b(f"{source}\n{target}".encode(), digest_size=8).digest()
