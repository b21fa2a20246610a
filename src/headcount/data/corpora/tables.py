"""Tables with a sentence pair a row: TSV, CSV, JSON lines, Parquet, Arrow; text columns of data sets of the hub."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from datasets import Dataset

from headcount.data.corpora.corpus import pairs_of, reading
from headcount.data.corpora.text import iterate_lines
from headcount.errors import InputError, printable

FORMATS = (".tsv", ".csv", ".jsonl", ".parquet", ".arrow")
NESTED = "translation"  # the column that holds both languages, in many data sets of the hub
BLOCK = 2**26  # bytes that are parsed at once, and so the most of a row

Column = str | int


def format_of(path: Path) -> str:
    """The format of a file by its name; .gz may follow that of text."""
    return Path(path.name.removesuffix(".gz")).suffix


def read_table(path: Path, columns: tuple[Column, Column]) -> Dataset:
    """The pairs in two columns of a file: their names, or in a TSV or CSV file without a header their numbers, from 1.

    TSV is not quoted: a quotation mark belongs to the sentence. Raises InputError for a file that cannot be read, or
    lacks a column.
    """
    read = {".tsv": _delimited, ".csv": _delimited, ".jsonl": _json, ".parquet": _parquet, ".arrow": _arrow}
    with reading(path):  # names of columns may be any bytes, too
        table = read[format_of(path)](path, columns)
        remedy = "set data.source_column and data.target_column"
        return text_columns(table, tuple(map(str, columns)), str(path), remedy)


def number_of_rows(path: Path) -> int:
    """Rows of a table in Parquet or Arrow; lines of any other file. Raises InputError where it cannot be read."""
    with reading(path):
        if format_of(path) == ".parquet":
            return pa.parquet.read_metadata(path).num_rows
        return _arrow(path, ("", "")).num_rows if format_of(path) == ".arrow" else sum(1 for _ in iterate_lines(path))


def text_columns(table: pa.Table, names: tuple[str, ...], where: str, remedy: str) -> Dataset:
    """The two columns of text of a table: columns of that name, or fields of the column `translation`.

    Raises InputError if there is none, or if it is not text; the message names the columns, and ends with `remedy`.
    """
    if NESTED in table.column_names and not set(names) <= set(table.column_names):
        table = table.select([NESTED]).flatten()
        table = table.rename_columns([name.removeprefix(f"{NESTED}.") for name in table.column_names])
    columns = []
    for name in names:
        if table.column_names.count(name) != 1:
            there = printable(", ".join(table.column_names))[:300]
            raise InputError(f"{where} has no column {name}, or several; it has {there}: {remedy}")
        column = table[name]
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if kind not in (pa.string(), pa.large_string(), pa.null()):
            raise InputError(f"{where}: column {name} holds {kind} and no text; {remedy}")
        with reading(where):
            column.validate(full=True)  # text in Parquet may be any bytes
        columns.append(column.cast(pa.string()))
    return pairs_of(*columns)


def _delimited(path: Path, columns: tuple[Column, Column]) -> pa.Table:
    quoted, numbered = format_of(path) == ".csv", all(isinstance(name, int) for name in columns)
    # Without a header, pyarrow calls the columns f0, f1, ...
    names = [f"f{int(name) - 1}" if numbered else str(name) for name in columns]
    parse = {"delimiter": ",", "quote_char": '"'} if quoted else {"delimiter": "\t", "quote_char": False}
    table = pa.csv.read_csv(
        path,
        pa.csv.ReadOptions(block_size=BLOCK, autogenerate_column_names=numbered),
        pa.csv.ParseOptions(newlines_in_values=quoted, **parse),
        pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
    )
    return table.rename_columns([str(n + 1) for n in range(table.num_columns)]) if numbered else table


def _json(path: Path, columns: tuple[Column, Column]) -> pa.Table:
    """An object a line, by Python's own reader: pyarrow's crashes at some damaged files."""
    rows = []
    for number, line in enumerate(iterate_lines(path), start=1):
        try:
            rows += [dict(json.loads(line).items())] if line.strip() else []
        except (ValueError, AttributeError, RecursionError):
            raise InputError(f"{path}, line {number}: no JSON object") from None
    names = dict.fromkeys(name for row in rows for name in row)
    read = {*map(str, columns), NESTED}  # values of the others may be of several kinds; a message has their names
    return pa.table({name: [row.get(name) for row in rows] if name in read else pa.nulls(len(rows)) for name in names})


def _parquet(path: Path, columns: tuple[Column, Column]) -> pa.Table:
    with pa.parquet.ParquetFile(path) as file:
        read = {*map(str, columns), NESTED}
        return file.read([name for name in file.schema_arrow.names if name in read] or None)


def _arrow(path: Path, columns: tuple[Column, Column]) -> pa.Table:
    with pa.memory_map(str(path)) as file:
        try:
            return pa.ipc.open_stream(file).read_all()
        except pa.ArrowInvalid:  # not a stream, as `datasets` writes it
            return pa.ipc.open_file(file).read_all()
