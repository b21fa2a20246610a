"""Gold structure of files: links between the words of a sentence, and their alignment with the words of a translation.

Words are what stands between spaces. All positions of a file count from 1, as in Universal Dependencies and in the
alignments of Och and Ney; in the data set they count from 0.
"""

import re
from collections.abc import Sequence
from typing import Any

from datasets import Dataset

from headcount.data.tokenizer import normalise
from headcount.errors import InputError
from headcount.evaluation.annotated import read_annotated

NEEDED, OPTIONAL = ("source", "target"), ("links", "alignment")
LINK = re.compile(r"(\S+):([0-9]{1,6})-([0-9]{1,6})")
PAIR = re.compile(r"([0-9]{1,6})([-p])([0-9]{1,6})")


def read_gold(paths: str | Sequence[str]) -> Dataset:
    """The sentences of a file, or of several, with the columns that the built-in corpus has.

    A file is a table: tab-separated, not quoted, with a header, plain or gzip. Its columns: source and target, words
    between spaces; links, such as "nsubj:3-12 det:2-3": relation, dependent and head, in words of the source;
    alignment, such as "1-2 3p2" (Pharaoh): source and target word, with "-" where the link is sure and "p" where it is
    only possible. One of these two columns may be missing, and one of the two cells of a row may be empty: it is not
    known. In the data set, each pair of the alignment has `sure`. Raises InputError with the line for what cannot be.
    """
    rows = [
        _sentence(f"{path}, line {number}", row)
        for path in ([paths] if isinstance(paths, str) else dict.fromkeys(paths))
        for number, row in read_annotated(path, NEEDED, OPTIONAL, "a table of gold structure")
    ]
    if len(rows) < 2:
        raise InputError(f"gold={paths}: {len(rows)} sentences; give two or more: every other one serves for choices")
    return Dataset.from_list(rows)


def _sentence(where: str, row: dict[str, str]) -> dict[str, Any]:
    """A row of the data set. Raises InputError."""
    sizes = {side: _size(where, side, row[side]) for side in NEEDED}
    links, alignment = (dict.fromkeys(row.get(name, "").split()) for name in OPTIONAL)
    if not links and not alignment:
        raise InputError(f"{where}: neither links nor alignment; give one of them")
    of_links = []
    for text in links:
        if not (found := LINK.fullmatch(text)):
            raise InputError(f"{where}: {text!r} is no link; write relation:dependent-head, such as nsubj:3-12")
        ends = [_place(where, text, "source", end, sizes) for end in found.groups()[1:]]
        if ends[0] == ends[1]:
            raise InputError(f"{where}: {text!r} links a word with itself")
        of_links.append({"relation": found[1], "dependent": ends[0], "head": ends[1]})
    pairs: dict[tuple[int, int], bool] = {}
    for text in alignment:
        if not (found := PAIR.fullmatch(text)):
            raise InputError(f"{where}: {text!r} is no pair of words; write source-target, such as 3-12, or 3p12")
        ends = [_place(where, text, side, end, sizes) for side, end in zip(NEEDED, found.group(1, 3), strict=True)]
        pairs[ends[0], ends[1]] = found[2] == "-" or pairs.get((ends[0], ends[1]), False)
    of_pairs = [{"source": i, "target": j, "sure": sure} for (i, j), sure in pairs.items()]
    return {**{side: row[side] for side in NEEDED}, "links": of_links, "alignment": of_pairs}


def _size(where: str, side: str, text: str) -> int:
    """The number of words. Raises InputError where the model reads another number."""
    count, read = len(text.split(" ")), len(normalise(text).split())
    if count != read:
        why = f"{count} words between spaces, of which the model reads {read}"
        raise InputError(f"{where}: the {side} has {why}: write one space between words and no white space within")
    return count


def _place(where: str, text: str, side: str, number: str, sizes: dict[str, int]) -> int:
    """A position from 0. Raises InputError."""
    if not 1 <= int(number) <= sizes[side]:
        raise InputError(f"{where}: {text!r}: no word {number} in a {side} of {sizes[side]}; positions count from 1")
    return int(number) - 1
