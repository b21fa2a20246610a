"""Cleaning of parallel text, and the report of it.

Only the training split is changed. Valid and test are checked and counted, never filtered or rewritten, so that
scores stay comparable (the tokenizer still reads every text in its normalised form).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from annotated_types import Ge
from tabulate import tabulate

from headcount.data.tokenizer import normalise
from headcount.errors import InputError

CHECKED = ("empty", "too long", "unequal lengths", "duplicate", "leak")  # a pair counts under the first
TOO_MANY_PIECES = "too many pieces"
REASONS = (*CHECKED, TOO_MANY_PIECES)
OVERLAP = ("source in valid", "target in valid")
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
    tolerated: list[str]
    enabled: bool

    def table(self) -> str:
        """A table as plain text: a row a reason, a column a split."""
        rows = [row for row in ROWS if self.enabled or row in ("read", TOO_MANY_PIECES, "kept")]
        cells = [["pairs" if self.enabled else "pairs (cleaning is off)", *self.counts]]
        for row in rows:
            values = ["-" if _undefined(row, split) else f"{n.get(row, 0):,}" for split, n in self.counts.items()]
            cells.append([f"{row} (kept)" if row in self.tolerated else row, *values])
        aligned = ("left", *["right"] * len(self.counts))
        lines = [tabulate(cells, tablefmt="plain", disable_numparse=True, colalign=aligned)]
        lines.append("Only train is filtered; valid and test are counted and kept whole.")
        if overlapping := [split for split, n in self.counts.items() if any(n.get(row) for row in OVERLAP)]:
            lines.append(
                f"Overlap of valid with {', '.join(overlapping)}: scores there favour what is chosen on valid."
            )
        return "\n".join(lines)

    def require_pairs(self) -> None:
        """Raises InputError, with the main reason, if a split has no pair left."""
        for split, counts in self.counts.items():
            if counts["kept"] == 0:
                reason = max(REASONS, key=lambda reason: counts.get(reason, 0))
                remedy = "data.max_length" if reason == TOO_MANY_PIECES else "data.cleaning"
                raise InputError(
                    f"no pair of the {split} split is left: {counts['read']} read, {counts.get(reason, 0)} of them "
                    f"dropped as '{reason}'; look at the text, or relax {remedy}"
                )


def _undefined(row: str, split: str) -> bool:
    """Only training pairs can leak into other splits, and only test sets can overlap with valid."""
    return (row == "leak" and split != "train") or (row in OVERLAP and split in ("train", "valid"))


class Text(NamedTuple):
    """Both sides of normalised text."""

    source: pa.Array
    target: pa.Array

    def counts_in(self, other: "Text") -> dict[str, int]:
        """The number of pairs that share their source with `other`, or only their target, by row of the report."""
        sources, targets = (
            _bools(pc.and_(pc.is_in(side, side_of_other), pc.not_equal(side, "")))
            for side, side_of_other in zip(self, other, strict=True)
        )
        return dict(zip(OVERLAP, (int(sources.sum()), int((targets & ~sources).sum())), strict=True))


class Findings(NamedTuple):
    """What was found in each pair alone.

    normalised: bool [pair], whether normalisation changed it. reasons: bool [pair, reason], by `CHECKED`; False for
    duplicates. keys: uint64 [pair], equal for equal pairs, and for others with a probability of 1 in 10^19.
    """

    normalised: np.ndarray
    reasons: np.ndarray
    keys: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Cleaning:
    """Rules that drop pairs from the training split: `cleaning` in conf/train.yaml. Words are counted by white
    space, lengths in characters, see `WIDE` and `SHORT`."""

    enabled: bool
    max_words: Annotated[int, Ge(1)] | None
    max_ratio: Annotated[float, Ge(1)] | None
    drop_duplicates: bool
    drop_leaks: bool

    def check(self, before: Text, forbidden: Text | None) -> tuple[Text, Findings]:
        """Check each pair alone: its normalised text (with cleaning off, the text itself), and what was found.

        forbidden: text that counts as a leak; None for none.
        """
        no = np.zeros(len(before.source), bool)
        reasons = dict.fromkeys(CHECKED, no)
        if not self.enabled:
            return before, Findings(no, np.column_stack(list(reasons.values())), no.astype(np.uint64))
        sources, targets = ([normalise(text) for text in side.to_pylist()] for side in before)
        text = Text(pa.array(sources, pa.string()), pa.array(targets, pa.string()))
        changed = pc.or_(*(pc.not_equal(*sides) for sides in zip(before, text, strict=True)))
        shorter, longer = np.sort([_widths(side) for side in text], axis=0)
        reasons["empty"] = shorter == 0
        if self.max_words is not None:
            spaces = np.max([pc.count_substring(side, " ").to_numpy() for side in text], axis=0)
            reasons["too long"] = spaces >= self.max_words
        if self.max_ratio is not None:
            reasons["unequal lengths"] = (longer > SHORT) & (longer > self.max_ratio * shorter)
        if forbidden is not None:
            reasons["leak"] = _bools(pc.or_(*(pc.is_in(*sides) for sides in zip(text, forbidden, strict=True))))
        keys = np.frombuffer(b"".join(map(_key, sources, targets)), np.uint64)
        return text, Findings(_bools(changed), np.column_stack(list(reasons.values())), keys)

    def keep(self, parts: Sequence[Findings], filters: bool) -> tuple[np.ndarray, dict[str, int]]:
        """Which pairs of a split are kept, bool [pair], and its counts by row of the report's table.

        parts: the split from its first pair to its last. filters: False for a split that is only counted.
        """
        reasons = np.concatenate([np.empty((0, len(CHECKED)), bool), *(part.reasons for part in parts)])
        if not self.enabled:
            return np.ones(len(reasons), bool), {"read": len(reasons), "kept": len(reasons)}
        keys = np.concatenate([np.empty(0, np.uint64), *(part.keys for part in parts)])
        duplicate = np.ones(len(keys), bool)
        duplicate[np.unique(keys, return_index=True)[1]] = False
        reasons[:, CHECKED.index("duplicate")] = duplicate
        # A pair counts under the first reason that drops it, or else under the first tolerated one.
        drops = reasons & np.array([reason not in self.tolerated for reason in CHECKED])
        dropped = drops.any(axis=1)
        first = np.where(dropped, drops.argmax(axis=1), reasons.argmax(axis=1))[reasons.any(axis=1)]
        by_reason = {CHECKED[reason]: int(n) for reason, n in enumerate(np.bincount(first)) if n}
        kept = ~dropped if filters else np.ones(len(reasons), bool)
        normalised = int(sum(part.normalised.sum() for part in parts))
        return kept, {"read": len(kept), "normalised": normalised, **by_reason, "kept": int(kept.sum())}

    @property
    def tolerated(self) -> list[str]:
        """The reasons that are counted, but drop no pair."""
        if not self.enabled:
            return []
        return ["duplicate"] * (not self.drop_duplicates) + ["leak"] * (not self.drop_leaks)


def _bools(column: pa.Array) -> np.ndarray:
    values: np.ndarray = column.to_numpy(zero_copy_only=False)
    return values


def _widths(texts: pa.Array) -> np.ndarray:
    """The characters of every text; those of `WIDE` count twice."""
    lengths: np.ndarray = pc.utf8_length(texts).to_numpy() + pc.count_substring_regex(texts, WIDE).to_numpy()
    return lengths


def _key(source: str, target: str) -> bytes:
    # A line end cannot occur in normalised text, so it separates.
    return hashlib.blake2b(f"{source}\n{target}".encode(), digest_size=8).digest()
