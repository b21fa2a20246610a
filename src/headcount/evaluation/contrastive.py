"""Contrastive evaluation: does a model give the right translation more probability than one with a single error?

Sennrich 2017, "How grammatical is character-level neural machine translation?": no search and no overlap with a
reference, only the two probabilities.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Accuracy:
    """`right` of `total` pairs were ranked correctly."""

    right: int
    total: int

    @property
    def percent(self) -> float:
        return 100 * self.right / self.total


def contrastive_accuracy(
    right: Sequence[float], wrong: Sequence[float], groups: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], Accuracy]:
    """Accuracy by group, here (phenomenon, grade), in order of first appearance. A tie counts as wrong.

    right and wrong: log-probabilities of the right and of the wrong translation of each source.
    """
    counts: dict[tuple[str, str], list[bool]] = {}
    for group, good, bad in zip(groups, right, wrong, strict=True):
        counts.setdefault(group, []).append(good > bad)
    return {group: Accuracy(sum(wins), len(wins)) for group, wins in counts.items()}
