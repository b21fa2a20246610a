"""Arrow streams on disk: written table by table, read memory-mapped."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.data.batches import Sentences
from headcount.data.shared import shared_arrays
from headcount.data.tokenizer import AnyTokenizer
from headcount.data.workers import SIDES
from headcount.files import require_regular


def write_tables(path: Path, tables: Iterable[pa.Table]) -> None:
    """Write tables of one schema as an Arrow stream; without tables, no file."""
    with ExitStack() as stack:
        writer = None
        for table in tables:
            if writer is None:
                sink = stack.enter_context(pa.OSFile(str(path), "wb"))
                writer = stack.enter_context(pa.ipc.new_stream(sink, table.schema))
            writer.write_table(table.combine_chunks())


def read_tables(path: Path) -> Iterator[pa.Table]:
    """Read the tables of `write_tables`, memory-mapped."""
    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
        for batch in stream:
            yield pa.Table.from_batches([batch])


def check_tables(path: Path, tokenizer: AnyTokenizer) -> None:
    """Check every value of a file that `prepare` may have written. Raises ValueError, pa.ArrowException among them, and
    KeyError where its text is none, addresses lead out of it, or there are other pieces than those of the tokenizer."""
    require_regular(path)
    for table in read_tables(path):
        table.validate(full=True)
        for side in SIDES:
            ids = pc.min_max(pc.list_flatten(table[f"{side}_ids"])).as_py()
            if not 0 <= (ids["min"] or 0) <= (ids["max"] or 0) < getattr(tokenizer, side).vocab_size:
                raise ValueError(f"{path.name} has pieces that the vocabulary lacks")


def read_sentences(path: Path, column: str, index: Path | None = None) -> Sentences:
    """The piece numbers in a column of an Arrow stream, memory-mapped and not copied.

    index: a folder in which processes share where each sentence lies; None: each has that for itself.
    """
    with pa.memory_map(str(path)) as source:
        file = source.read_buffer()
    make = partial(_places, file, column)
    return Sentences.mapped(path, **(shared_arrays(index / column, make) if index else make()))


def _places(file: pa.Buffer, column: str) -> dict[str, np.ndarray]:
    """Where each list of a column starts and ends, counted in numbers of four bytes from the beginning of the file."""
    starts, ends = [], []
    for batch in pa.ipc.open_stream(file):
        ids = batch.column(column)
        # Arrow aligns all arrays to 8 bytes.
        begin = (ids.values.buffers()[1].address - file.address) // 4 if len(ids.values) else 0
        offsets = begin + ids.offsets.to_numpy().astype(np.int64)
        starts.append(offsets[:-1])
        ends.append(offsets[1:])
    return {"starts": np.concatenate(starts), "ends": np.concatenate(ends)}
