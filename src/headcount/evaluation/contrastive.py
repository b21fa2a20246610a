"""Contrastive evaluation: does a model give the right translation more probability than one with a single error?

Sennrich 2017, "How grammatical is character-level neural machine translation?": no search and no overlap with a
reference, only the two probabilities.
"""

from collections.abc import Sequence


def contrastive_accuracy(
    right: Sequence[float], wrong: Sequence[float], groups: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], tuple[float, int]]:
    """Percentage of pairs that are ranked correctly, and their number, by group, here (phenomenon, grade). A tie counts
    as wrong.

    right and wrong: log-probabilities of the right and of the wrong translation of each source.
    """
    wins: dict[tuple[str, str], list[bool]] = {}
    for group, good, bad in zip(groups, right, wrong, strict=True):
        wins.setdefault(group, []).append(good > bad)
    return {group: (100 * sum(each) / len(each), len(each)) for group, each in wins.items()}
