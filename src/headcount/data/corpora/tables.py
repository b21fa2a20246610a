"""Tables with a sentence pair a row: TSV, CSV, JSON lines, Parquet; text columns of Arrow tables."""

import csv
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headcount.data.corpora.corpus import Pairs, pair_table
from headcount.data.corpora.text import LINES, read_chunks
from headcount.errors import InputError, first_line, printable

COLUMN_SETTINGS = "set data.source_column and data.target_column"
MOST_NAMED = 300  # characters
LONGEST_FIELD = 2**31 - 1  # of CSV, in characters: the most that Python takes everywhere
NESTED = "translation"  # the column that holds both languages, in many data sets of the hub
Column = str | int
TextPairs = Iterator[tuple[str, str]]


@dataclass(frozen=True)
class TableFile:
    """A file with a pair a row, in the format of its suffix.

    path: ends in .tsv, .csv, .jsonl or .parquet; .gz may follow the first three. source, target: columns: the name, or
    the number from 1 in a TSV or CSV file without a header.
    Raises ValueError for columns that a file of this format cannot have.
    """

    path: Path
    source: Column
    target: Column

    def __post_init__(self) -> None:
        numbers = [column for column in (self.source, self.target) if isinstance(column, int)]
        if numbers and (len(numbers) == 1 or min(numbers) < 1 or self.format not in (".tsv", ".csv")):
            raise ValueError(
                f"data.source_column={self.source} and data.target_column={self.target} do not fit {self.path}: give "
                "the names of two columns, or for a .tsv or .csv file without a header their numbers, from 1"
            )

    @property
    def format(self) -> str:
        return Path(self.path.name.removesuffix(".gz")).suffix

    @property
    def paths(self) -> list[Path]:
        return [self.path]

    def pairs(self) -> Pairs:
        """The pairs in chunks. A text file is read to its end first, so that errors in it are raised at once.

        Raises InputError for a file that cannot be read, lacks a column or has a malformed line.
        """
        if self.format == ".parquet":
            with _opened_parquet(self.path) as file:
                for column in (self.source, self.target):
                    text_column(str(self.path), file.schema_arrow, str(column), COLUMN_SETTINGS)
                return Pairs(file.metadata.num_rows, partial(_parquet_tables, self.path, self.source, self.target))
        read = partial(_ROWS[self.format], self.path, self.source, self.target)
        return Pairs(sum(1 for _ in read()), lambda rows: _in_tables(read(), rows))


def text_column(where: str, schema: pa.Schema, name: str, remedy: str) -> Callable[[pa.Table], pa.ChunkedArray]:
    """A function that takes a text column out of tables of this schema: a column of that name, or a field of the column
    `translation`.

    Raises InputError if there is none, or if it is not text; the message names the columns, and ends with `remedy`.
    """
    if schema.names.count(name) > 1:
        raise InputError(f"{where} has several columns {name}; it has {_names(schema.names)}: {remedy}")
    if name in schema.names:
        kind, take = schema.field(name).type, lambda table: table[name]
    else:
        nested = schema.field(NESTED).type if NESTED in schema.names else None
        fields = {field.name: field.type for field in nested} if nested and pa.types.is_struct(nested) else {}
        if name not in fields:
            raise InputError(f"{where} has no column {name}; it has {_names(fields or schema.names)}: {remedy}")
        kind, take = fields[name], lambda table: pc.struct_field(table[NESTED], name)
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not any(holds(kind) for holds in (pa.types.is_string, pa.types.is_large_string, pa.types.is_null)):
        raise InputError(f"{where}: column {name} holds {kind} and no text; {remedy}")
    return take


def _names(columns: Iterable[str]) -> str:
    """The names of columns, for a message, which a file that is none of these would make endless."""
    names = printable(", ".join(columns))
    return names if len(names) <= MOST_NAMED else f"{names[:MOST_NAMED]}..."


def _opened_parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; give the path of a Parquet file") from None
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:  # the last: names of columns
        raise InputError(f"{path}: cannot be read ({first_line(error)}); give a Parquet file") from None


def _parquet_tables(path: Path, source: Column, target: Column, rows: int) -> Iterator[pa.Table]:
    done = 0
    with _opened_parquet(path) as file:
        schema = file.schema_arrow
        take = [text_column(str(path), schema, str(column), COLUMN_SETTINGS) for column in (source, target)]
        needed = [name for name in schema.names if name in (source, target, NESTED)]
        try:
            for batch in file.iter_batches(rows, columns=needed):
                table = pa.Table.from_batches([batch])
                table.validate(full=True)  # text in Parquet may be any bytes
                yield pair_table(*(column(table) for column in take))
                done += table.num_rows
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{path}: cannot be read after row {done} ({first_line(error)}); is it whole?") from None


def _in_tables(pairs: TextPairs, rows: int) -> Iterator[pa.Table]:
    while chunk := list(itertools.islice(pairs, rows)):
        yield pair_table(*(pa.array(side, pa.string()) for side in zip(*chunk, strict=True)))


def _lines(path: Path) -> Iterator[str]:
    return itertools.chain.from_iterable(read_chunks(path, LINES))


def _tsv_pairs(path: Path, source: Column, target: Column) -> TextPairs:
    # Parallel text in TSV is not quoted: a quotation mark belongs to the sentence.
    rows = ((number, line.split("\t")) for number, line in enumerate(_lines(path), 1) if line)
    return _delimited_pairs(path, rows, source, target)


def _csv_pairs(path: Path, source: Column, target: Column) -> TextPairs:
    return _delimited_pairs(path, _csv_rows(path), source, target)


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((line + "\n" for line in _lines(path)), strict=True)
    while True:
        number = reader.line_num + 1  # the first line of the row, which may have several
        before = csv.field_size_limit(LONGEST_FIELD)  # of the whole process, so only for the moment
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise InputError(
                f'{path}, line {number}: not valid CSV ({error}); quote with ", and double each " within quotes'
            ) from None
        finally:
            csv.field_size_limit(before)
        if row is None:
            return
        if row:
            yield number, row


def _delimited_pairs(path: Path, rows: Iterator[tuple[int, list[str]]], source: Column, target: Column) -> TextPairs:
    """The two columns of rows of equal length; the first row is the header, unless columns are given by number."""
    first = next(rows, None)
    if first is None:
        return
    number, header = first[0], [name.strip() for name in first[1]]
    places = []
    for column in (source, target):
        if isinstance(column, str) and header.count(column) != 1:
            how_many = "several columns" if column in header else "no column"
            raise InputError(
                f"{path} has {how_many} {column}; line {number} names {_names(header)}: {COLUMN_SETTINGS} (to "
                "numbers, from 1, where there is no header; a tab divides columns in .tsv, a comma in .csv)"
            )
        if isinstance(column, int) and column > len(header):
            raise InputError(f"{path} has no column {column}; line {number} has {len(header)}: {COLUMN_SETTINGS}")
        places.append(header.index(column) if isinstance(column, str) else column - 1)
    for line, row in rows if isinstance(source, str) else itertools.chain([first], rows):
        if len(row) != len(header):
            raise InputError(
                f"{path}, line {line}: {len(row)} columns, where line {number} has {len(header)}; mend or remove it"
            )
        yield row[places[0]], row[places[1]]


def _json_pairs(path: Path, source: Column, target: Column) -> TextPairs:
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, line {number}: not valid JSON ({error}); give an object a line") from None
        if not isinstance(row, dict):
            raise InputError(f'{path}, line {number}: not a JSON object, such as {{"{source}": "..."}}')
        yield _json_text(path, number, row, source), _json_text(path, number, row, target)


def _json_text(path: Path, number: int, row: dict[Any, Any], name: Column) -> str:
    nested = row.get(NESTED)
    fields = nested if name not in row and isinstance(nested, dict) else row
    if name not in fields:
        raise InputError(f"{path}, line {number}: no field {name}; it has {_names(fields)}: {COLUMN_SETTINGS}")
    text = fields[name]
    if text is None:
        return ""
    if not isinstance(text, str):
        raise InputError(f"{path}, line {number}: the field {name} must be text, but is {json.dumps(text)[:40]}")
    if not text.isprintable() and any("\ud800" <= character <= "\udfff" for character in text):
        raise InputError(f"{path}, line {number}: half a surrogate pair in the field {name}; mend or remove it")
    return text


_ROWS = {".tsv": _tsv_pairs, ".csv": _csv_pairs, ".jsonl": _json_pairs}
FORMATS = (*_ROWS, ".parquet")
