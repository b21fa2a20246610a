"""Tables of annotated sentences: contrastive pairs, and gold structure."""

from collections.abc import Sequence
from pathlib import Path

from headcount.data.corpora.text import read_lines
from headcount.errors import InputError


def read_annotated(
    path: str | Path, needed: Sequence[str], optional: Sequence[str], what: str
) -> list[tuple[int, dict[str, str]]]:
    """The rows of a table with their line numbers: tab-separated, not quoted, with a header, plain or gzip.

    needed: columns that must be there, and full in every row; optional: those that may be there; what: such a table, in
    error messages. Raises InputError with the line.
    """
    names, *rows = [line.split("\t") for line in read_lines(path)] or [[""]]
    for name in (*needed, *optional):
        if names.count(name) > 1 or (name in needed and name not in names):
            allowed = f"{what} has the columns {', '.join(needed)}, and may have {', '.join(optional)} and others"
            raise InputError(f"{path}, line 1: no column {name}, or several; {allowed}")
    if not rows:
        raise InputError(f"{path}: holds no row below its header")
    found = []
    for number, cells in enumerate(rows, start=2):
        if len(cells) != len(names):
            raise InputError(f"{path}, line {number}: {len(cells)} columns where the header has {len(names)}")
        row = dict(zip(names, cells, strict=True))
        if empty := [name for name in needed if not row[name].strip()]:
            raise InputError(f"{path}, line {number}: its {empty[0]} is empty")
        found.append((number, row))
    return found
