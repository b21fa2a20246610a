"""Compact letter display: rows that share a letter do not differ (Piepho 2004)."""

from collections.abc import Iterable, Sequence


def compact_letters(means: Sequence[float], differing: Iterable[tuple[int, int]]) -> list[str]:
    """The letters of each row; a is of the row with the highest mean.

    differing: pairs of rows that differ. Insert and absorb: each such pair splits every set of rows that holds both,
    and sets within others are dropped.
    """
    sets = [frozenset(range(len(means)))]
    for first, second in differing:
        split = [part for each in sets for part in _without(each, first, second)]
        sets = [each for each in dict.fromkeys(split) if not any(each < other for other in split)]
    order = sorted(range(len(means)), key=lambda row: -means[row])
    place = {row: number for number, row in enumerate(order)}
    sets.sort(key=lambda each: sorted(place[row] for row in each))
    return ["".join(_letter(number) for number, each in enumerate(sets) if row in each) for row in range(len(means))]


def _without(rows: frozenset[int], first: int, second: int) -> list[frozenset[int]]:
    return [rows - {first}, rows - {second}] if {first, second} <= rows else [rows]


def _letter(number: int) -> str:
    return chr(ord("a") + number) if number < 26 else f"{_letter(number // 26 - 1)}{_letter(number % 26)}"
