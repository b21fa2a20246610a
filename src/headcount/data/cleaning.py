"""Cleaning of parallel text, and the account of what it did.

Only the training split is changed. Valid and test are checked and counted, never filtered or rewritten, so that
scores stay comparable (the tokenizer still reads every text in its normalised form).
"""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from datasets import Dataset, DatasetDict

from headcount.data.tokenizer import normalise
from headcount.errors import InputError

EMPTY = "empty"
TOO_LONG = "too long"
RATIO = "length ratio"
DUPLICATE = "duplicate"
LEAK = "leak"
TOO_MANY_PIECES = "too many pieces"
REASONS = (EMPTY, TOO_LONG, RATIO, DUPLICATE, LEAK, TOO_MANY_PIECES)
ROWS = ("read", "normalised", *REASONS, "kept")


@dataclass(frozen=True)
class CleaningReport:
    """What was found in every split.

    Args:
        counts: split -> row of the table (see `ROWS`) -> pairs. A pair counts under the first reason that holds.
        tolerated: reasons that were counted in train, but whose pairs stayed.
        enabled: False where cleaning was off; then only the rows "read" and "kept" mean something.
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
        """Plain text, one row a reason and one column a split, aligned for a terminal."""
        rows = [row for row in ROWS if self.enabled or row in ("read", TOO_MANY_PIECES, "kept")]
        cells = [["pairs" if self.enabled else "pairs (cleaning is off)", *self.counts]]
        for row in rows:
            label = f"{row} (kept)" if row in self.tolerated else row
            # A dash where the question makes no sense: only training pairs can leak into the other splits.
            values = [
                "-" if row == LEAK and split != "train" else f"{n.get(row, 0):,}" for split, n in self.counts.items()
            ]
            cells.append([label, *values])
        widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
        lines = [
            "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))])
            for line in cells
        ]
        lines.append("Only train is filtered; valid and test are counted and kept whole.")
        return "\n".join(lines)

    def require_pairs(self) -> None:
        """Raises InputError where a split has nothing left, with the main reason."""
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


class HeldOut(NamedTuple):
    """The normalised text of valid and test."""

    sources: set[str]
    targets: set[str]


@dataclass(frozen=True)
class Cleaning:
    """What to drop from the training split.

    Args:
        enabled: False leaves the text as it is.
        max_words: words (by white space) that either side may have; None for no limit.
        max_ratio: how many times as many characters the longer side may have; None for no limit.
        drop_duplicates: of equal pairs, keep the first.
        drop_leaks: drop a pair whose source or target also stands in valid or test.
    """

    enabled: bool = True
    max_words: int | None = None
    max_ratio: float | None = None
    drop_duplicates: bool = True
    drop_leaks: bool = True

    def __post_init__(self) -> None:
        if self.max_words is not None and self.max_words < 1:
            raise ValueError(
                f"data.cleaning.max_words={self.max_words} would drop every pair; give 1 or more, such as 200, or null"
            )
        if self.max_ratio is not None and self.max_ratio < 1:
            raise ValueError(
                f"data.cleaning.max_ratio={self.max_ratio} would drop every pair; give 1 or more, such as 5, or null"
            )

    def __call__(self, data: DatasetDict) -> tuple[DatasetDict, CleaningReport]:
        """Cleans the training split of `data` (columns `source`, `target`; others follow their pair).

        Raises:
            InputError: a split has no pairs, or train has none left.
        """
        if not self.enabled:
            sizes = {split: {"read": len(pairs), "kept": len(pairs)} for split, pairs in data.items()}
            report = CleaningReport(sizes, enabled=False)
            report.require_pairs()
            return data, report

        counts: dict[str, dict[str, int]] = {}
        cleaned = DatasetDict(data)
        held_out = HeldOut(set(), set())
        # Train comes last, since a leak is known only from the other splits.
        for split in sorted(data, key=lambda split: split == "train"):
            table = data[split].with_format("arrow")[:]
            before = list(zip(table["source"].to_pylist(), table["target"].to_pylist(), strict=True))
            pairs = [(normalise(source), normalise(target)) for source, target in before]
            reasons = self._reasons(pairs, held_out if split == "train" else HeldOut(set(), set()))
            kept = [row for row, reason in enumerate(reasons) if reason is None or reason in self._tolerated]
            counts[split] = {
                "read": len(pairs),
                "normalised": sum(old != new for old, new in zip(before, pairs, strict=True)),
                **Counter(filter(None, reasons)),
                "kept": len(kept) if split == "train" else len(pairs),
            }
            if split == "train":
                cleaned[split] = Dataset(_with_text(table, pairs).take(pa.array(kept, type=pa.int64())))
            else:
                held_out.sources.update(source for source, _ in pairs)
                held_out.targets.update(target for _, target in pairs)
        report = CleaningReport({split: counts[split] for split in data}, self._tolerated)
        report.require_pairs()
        return cleaned, report

    @property
    def _tolerated(self) -> tuple[str, ...]:
        return (DUPLICATE,) * (not self.drop_duplicates) + (LEAK,) * (not self.drop_leaks)

    def _reasons(self, pairs: list[tuple[str, str]], held_out: HeldOut) -> list[str | None]:
        """For every pair the first reason to drop it, or else the first tolerated one, or None."""
        seen: set[tuple[str, str]] = set()
        reasons: list[str | None] = []
        for source, target in pairs:
            found = []
            if not source or not target:
                found.append(EMPTY)
            elif self.max_words is not None and max(source.count(" "), target.count(" ")) >= self.max_words:
                found.append(TOO_LONG)
            elif self.max_ratio is not None and _ratio(source, target) > self.max_ratio:
                found.append(RATIO)
            if (source, target) in seen:
                found.append(DUPLICATE)
            if source in held_out.sources or target in held_out.targets:
                found.append(LEAK)
            seen.add((source, target))
            reasons.append(next((reason for reason in found if reason not in self._tolerated), next(iter(found), None)))
        return reasons


def _with_text(table: pa.Table, pairs: list[tuple[str, str]]) -> pa.Table:
    for side, name in enumerate(("source", "target")):
        field = pa.field(name, pa.string())
        texts = pa.array([pair[side] for pair in pairs], type=field.type)
        table = table.set_column(table.column_names.index(name), field, texts)
    return table


def _ratio(source: str, target: str) -> float:
    shorter, longer = sorted((len(source), len(target)))
    return longer / shorter
