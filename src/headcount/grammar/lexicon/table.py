"""Tables of words: text files with columns separated by tabs, one word a line.

Lines that begin with # are comments. The first other line names the columns. A mark after a name says what the column
holds: nothing for one value, ? for a value that may be missing, * for words separated by blanks, + for at least one.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TypeVar

from headcount.errors import InputError

Item = TypeVar("Item")
Row = dict[str, str]


def content(path: Path) -> list[tuple[int, str]]:
    """The lines that are not comments, with their numbers."""
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    return [(number, line.rstrip()) for number, line in lines if line.strip() and not line.startswith("#")]


def read_table(
    path: Path, build: Callable[..., Item], allowed: Mapping[str, Collection[str]], rows_each: int = 1
) -> list[Item]:
    """The items of a table, in its order.

    build: makes an item of `rows_each` successive rows. allowed: the values of a column. Raises InputError for a wrong
    row, with the file and the line.
    """
    (_, header), *lines = content(path)
    columns = header.split("\t")
    items = []
    for start in range(0, len(lines), rows_each):
        group = lines[start : start + rows_each]
        try:
            rows = [_row(line, columns, allowed) for _, line in group]
            if len(rows) < rows_each:
                raise ValueError(f"the table ends within an item; give {rows_each} lines for each")
            items.append(build(*rows))
        except ValueError as error:
            numbers = " and ".join(str(number) for number, _ in group)
            raise InputError(f"{path}, line {numbers}: {error}") from error
    return items


def _row(line: str, columns: list[str], allowed: Mapping[str, Collection[str]]) -> Row:
    """The values of a line by column. Raises ValueError for a wrong one."""
    names = [column.rstrip("?*+") for column in columns]
    values = line.split("\t")
    if len(values) > len(columns):
        raise ValueError(f"{len(values)} columns; give {len(columns)}, separated by tabs: {', '.join(names)}")
    values += [""] * (len(columns) - len(values))
    for column, name, value in zip(columns, names, values, strict=True):
        if not value and not column.endswith(("?", "*")):
            raise ValueError(f"{name} is empty; the columns, separated by tabs, are {', '.join(names)}")
        for word in value.split() if column.endswith(("*", "+")) else filter(None, [value]):
            if word not in allowed.get(name, [word]):
                raise ValueError(f"{name}: {word!r} is not allowed; give one of {', '.join(allowed[name])}")
    return dict(zip(names, values, strict=True))
