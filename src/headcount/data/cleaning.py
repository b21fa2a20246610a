"""Cleaning of parallel text, and the report of it.

Only the training split is changed. Valid and test are checked and counted, never filtered or rewritten, so that
scores stay comparable (the tokenizer still reads every text in its normalised form).
"""

import hashlib
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from annotated_types import Ge
from datasets import Dataset
from tabulate import tabulate

from headcount.data.tokenizer import normalise
from headcount.errors import InputError
from headcount.settings import Positive

CHECKED = ("empty", "too long", "unequal lengths", "duplicate", "leak")  # a pair counts under the first
TOO_MANY_PIECES = "too many pieces"  # as corpora that were prepared earlier have it; shown as subwords
REASONS = (*CHECKED, TOO_MANY_PIECES)
ROWS = ("read", "normalised", *REASONS, "kept")

# Characters for a syllable or a word. Each counts as two, its width in a terminal, so that Chinese, Japanese and Korean
# text is about as long as its translation.
WIDE = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]"
SHORT = 12  # characters up to which lengths are not compared: "OK" is "In Ordnung"


@dataclass(frozen=True)
class CleaningReport:
    """Counts of pairs by split and reason.

    counts: split -> row of the table (see `ROWS`) -> pairs. A pair counts under the first reason that holds; only
    training pairs can leak. enabled: False if cleaning was off; then only the rows "read" and "kept" have a meaning.
    """

    counts: dict[str, dict[str, int]]
    enabled: bool

    def table(self) -> str:
        """A table as plain text: a row a reason, a column a split."""
        rows = [row for row in ROWS if self.enabled or row in ("read", TOO_MANY_PIECES, "kept")]
        cells = [["pairs" if self.enabled else "pairs (cleaning is off)", *self.counts]]
        for row in rows:
            leaks = row == "leak"
            values = ["-" if leaks and split != "train" else f"{n.get(row, 0):,}" for split, n in self.counts.items()]
            cells.append([shown(row), *values])
        aligned = ("left", *["right"] * len(self.counts))
        lines = [tabulate(cells, tablefmt="plain", disable_numparse=True, colalign=aligned)]
        lines.append("Only train is filtered; valid and test are counted and kept whole.")
        return "\n".join(lines)

    def require_pairs(self) -> None:
        """Raises InputError, with the main reason, if a split has no pair left."""
        for split, counts in self.counts.items():
            if counts["kept"] == 0:
                reason = max(REASONS, key=lambda reason: counts.get(reason, 0))
                remedy = "data.max_length" if reason == TOO_MANY_PIECES else "data.cleaning"
                raise InputError(
                    f"no pair of the {split} split is left: {counts['read']} read, {counts.get(reason, 0)} of them "
                    f"dropped as '{shown(reason)}'; look at the text, or relax {remedy}"
                )


def shown(reason: str) -> str:
    """A reason in the words that are printed."""
    return reason.replace("pieces", "subwords")


class Text(NamedTuple):
    """Both sides of a text."""

    source: pa.Array
    target: pa.Array

    @classmethod
    def of(cls, table: pa.Table) -> "Text":
        return cls(*(table[side].combine_chunks() for side in cls._fields))

    def within(self, table: pa.Table) -> pa.Table:
        """A table of pairs with this text in place of its own; its other columns stay."""
        return pa.table(dict(zip(table.column_names, table.columns, strict=True)) | self._asdict())


class Findings(NamedTuple):
    """What was found in each pair alone.

    normalised: bool [pair], whether normalisation changed it. reasons: bool [pair, reason], by `CHECKED`; False for
    duplicates. keys: int64 [pair], equal for equal pairs, and for others with a probability of 1 in 10^19; with
    cleaning off, row numbers. sizes: int [pair], bytes of UTF-8 of both normalised sides.
    """

    normalised: np.ndarray
    reasons: np.ndarray
    keys: np.ndarray
    sizes: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Cleaning:
    """Rules that drop pairs from the training split: `cleaning` in conf/train.yaml. Words are counted by white
    space, lengths in characters, see `WIDE` and `SHORT`."""

    enabled: bool
    max_words: Positive | None
    max_ratio: Annotated[float, Ge(1)] | None
    drop_duplicates: bool
    drop_leaks: bool

    def normal(self, text: Text) -> Text:
        """The normalised text; with cleaning off, the text itself."""
        if not self.enabled:
            return text
        return Text(*(pa.array([normalise(each) for each in side.to_pylist()], pa.string()) for side in text))

    def check(self, pairs: Dataset, forbidden: Text | None, rows: slice) -> Findings:
        """Check each of these pairs alone. pairs: in the format of Arrow. forbidden: normalised text that counts as a
        leak; None for none."""
        before = Text.of(pairs[rows])
        text = self.normal(before)
        no = np.zeros(len(text.source), bool)
        sizes = np.sum([pc.binary_length(side).to_numpy() for side in text], axis=0)
        reasons = dict.fromkeys(CHECKED, no)
        if not self.enabled:
            return Findings(no, np.column_stack(list(reasons.values())), np.arange(rows.start, rows.stop), sizes)
        changed = pc.or_(*(pc.not_equal(*sides) for sides in zip(before, text, strict=True)))
        shorter, longer = np.sort([_widths(side) for side in text], axis=0)
        reasons["empty"] = shorter == 0
        if self.max_words is not None:
            spaces = np.max([pc.count_substring(side, " ").to_numpy() for side in text], axis=0)
            reasons["too long"] = spaces >= self.max_words
        if self.max_ratio is not None:
            reasons["unequal lengths"] = (longer > SHORT) & (longer > self.max_ratio * shorter)
        if forbidden is not None and self.drop_leaks:
            reasons["leak"] = _bools(pc.or_(*(pc.is_in(*sides) for sides in zip(text, forbidden, strict=True))))
        keys = np.frombuffer(b"".join(map(_key, *(side.to_pylist() for side in text))), np.int64)
        return Findings(_bools(changed), np.column_stack(list(reasons.values())), keys, sizes)

    def keep(self, found: Findings, filters: bool) -> tuple[np.ndarray, dict[str, int]]:
        """Which pairs of a split are kept, bool [pair], and its counts by row of the report's table. filters: False for
        a split that is only counted."""
        count, reasons = len(found.keys), found.reasons.copy()
        if self.drop_duplicates:
            duplicate = np.ones(count, bool)
            duplicate[np.unique(found.keys, return_index=True)[1]] = False
            reasons[:, CHECKED.index("duplicate")] = duplicate
        dropped = np.asarray(reasons.any(axis=1))
        first = reasons.argmax(axis=1)[dropped]
        by_reason = {CHECKED[reason]: int(n) for reason, n in enumerate(np.bincount(first)) if n}
        kept = ~dropped if filters else np.ones(count, bool)
        normalised = int(found.normalised.sum())
        return kept, {"read": count, "normalised": normalised, **by_reason, "kept": int(kept.sum())}


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
