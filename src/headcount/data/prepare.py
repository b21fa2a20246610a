"""Preparation of a corpus on disk: clean the text, train the tokenizer, encode.

The text is read in chunks, on which several processes work; their results are put together in order, so the number of
processes changes nothing. Of each split, SPLIT.arrow has the text, SPLIT.pieces all piece numbers (int32), and
SPLIT.offsets.npy where in it each sentence begins: source 0, target 0, source 1, ...
"""

import itertools
import json
import logging
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from datasets import Dataset

from headcount.data.batches import Sentences
from headcount.data.cleaning import TOO_MANY_PIECES, Cleaning, CleaningReport, Findings, Text
from headcount.data.corpora.corpus import SIDES, SPLITS, Corpus, further_names, one_line
from headcount.data.tokenizer import PAD, AnyTokenizer, SentencePiece, save_tokenizer
from headcount.errors import InputError
from headcount.files import new_directory
from headcount.processes import kills_named, process_pool

CHUNK = 2**14  # pairs that a process works on at once
SMALL = 50_000  # pairs up to which one process is faster
MOST_PROCESSES = 32  # the process that writes cannot keep more busy

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


def prepare(
    corpus: Corpus, cleaning: Cleaning, tokenizer: SentencePiece | AnyTokenizer, max_length: int | None, folder: Path
) -> None:
    """Write text and pieces of every split, the tokenizer and the cleaning report into `folder`, which appears when it
    is whole. As many processes work as torch has threads.

    tokenizer: a trained one, or the settings of its training. max_length: most pieces of either side in train; longer
    pairs are dropped.
    Raises InputError for errors in the text, see the parts, where it changed meanwhile, or if a process was killed.
    """
    logger.info("reading the corpus")
    before, splits = corpus.fingerprint(), dict(corpus.load())
    names = [*SPLITS, *further_names(splits)]
    counts: dict[str, dict[str, int]] = {}
    with new_directory(folder) as new:
        (new / "checked").mkdir()
        logger.info("cleaning %s pairs", f"{sum(map(len, splits.values())):,}")
        held_out: dict[str, Text] = {}
        for split in [name for name in names if name != "train"]:
            texts, found = zip(*check(splits[split], cleaning, None, new / "checked" / split), strict=True)
            held_out[split], counts[split] = joined(texts), cleaning.keep(found, filters=False)[1]
            if cleaning.enabled and split != "valid":
                counts[split] |= held_out[split].counts_in(held_out["valid"])
        forbidden = joined(held_out.values())
        train = splits.pop("train")  # the text is in memory, and no longer needed once it is checked
        found = tuple(found for _, found in check(train, cleaning, forbidden, new / "checked" / "train"))
        del train
        pa.default_memory_pool().release_unused()
        kept, counts["train"] = cleaning.keep(found, filters=True)
        report = CleaningReport({split: counts[split] for split in names}, cleaning.tolerated, cleaning.enabled)
        report.require_pairs()
        if isinstance(tokenizer, SentencePiece):
            logger.info("training the tokenizer, %s with %s pieces", tokenizer.model_type, f"{tokenizer.vocab_size:,}")
            text = training_text(read_text(new / "checked" / "train"), kept, tokenizer.sample_bytes)
            tokenizer = tokenizer.train(*text)
        save_tokenizer(tokenizer, new)
        logger.info("encoding")
        for split in names:
            keep = kept if split == "train" else None
            longer = encode(read_text(new / "checked" / split), keep, tokenizer, max_length, new / split)
            if max_length is not None:
                counts[split][TOO_MANY_PIECES] = longer
                counts[split]["kept"] -= longer if split == "train" else 0
        report.require_pairs()
        (new / "report.json").write_text(json.dumps(asdict(report), indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(new / "checked")
        if corpus.fingerprint() != before:
            raise InputError("the text of the corpus changed while it was prepared; start again")


def joined(texts: Iterable[Text]) -> Text:
    """Several texts, one after the other."""
    source, target = (pa.concat_arrays(side) for side in zip(*texts, strict=True))
    return Text(source, target)


def check(pairs: Dataset, cleaning: Cleaning, forbidden: Text | None, path: Path) -> Iterator[tuple[Text, Findings]]:
    """The normalised text of a split and what was found in it, chunk by chunk, while the text is written to a file.

    forbidden: the text of the splits that train should not share; None for these splits themselves, whose text is
    written as it is, and not normalised.
    """
    if not len(pairs):
        raise InputError(f"the {path.name} split of the corpus holds no pairs; give it at least one")
    pairs = pairs.with_format("arrow")
    schema = pairs[:0].schema.remove_metadata()
    for side in SIDES:
        schema = schema.set(schema.get_field_index(side), pa.field(side, pa.string()))
    with writing(path, schema) as write:
        for rows, (text, normal, found) in in_processes(partial(_check, pairs, cleaning, forbidden), len(pairs)):
            columns = dict(zip(pairs.column_names, pairs[rows].columns, strict=True))
            write(pa.table(columns | text._asdict(), schema))
            yield normal, found


def _check(pairs: Dataset, cleaning: Cleaning, forbidden: Text | None, rows: slice) -> tuple[Text, Text, Findings]:
    table = pairs[rows]
    text = Text(*(one_line(table[side]).combine_chunks() for side in SIDES))
    normal, found = cleaning.check(text, forbidden)
    return text if forbidden is None else normal, normal, found


def training_text(text: Dataset, kept: np.ndarray, sample_bytes: int) -> list[list[str]]:
    """Both sides of the kept pairs, or of a random sample of so many bytes, always the same pairs."""

    def tables() -> Iterator[pa.Table]:
        return (text[rows].filter(pa.array(kept[rows])) for rows in chunks(len(text)))

    size = sum(pc.sum(pc.binary_length(table[side])).as_py() or 0 for table in tables() for side in SIDES)
    random = np.random.default_rng(0)
    sample = [table.filter(pa.array(random.random(len(table)) < sample_bytes / max(size, 1))) for table in tables()]
    return [[text for table in sample for text in table[side].to_pylist()] for side in SIDES]


def encode(text: Dataset, kept: np.ndarray | None, tokenizer: AnyTokenizer, max_length: int | None, path: Path) -> int:
    """Write the text and the pieces of a split; `path` has its name. Returns how many pairs have more than `max_length`
    pieces on a side.

    kept: bool [pair], the pairs to write, of these the ones within `max_length`; None for all pairs.
    """
    longer, lengths = 0, [np.ones((1, 1), np.int64)]
    with writing(path.with_suffix(".arrow"), text[:0].schema) as write, path.with_suffix(".pieces").open("wb") as file:
        file.write(np.int32(PAD).tobytes())  # an empty file cannot be mapped
        work = partial(_encode, text, kept, tokenizer, max_length)
        for rows, (chosen, found, ids) in in_processes(work, len(text)):
            write(text[rows] if kept is None else text[rows].filter(pa.array(chosen)))
            longer += found
            file.write(ids.pieces.tobytes())
            lengths.append(ids.lengths[:, None] - 1)
    np.save(path.with_suffix(".offsets.npy"), np.cumsum(np.concatenate(lengths)))
    return longer


def _encode(
    text: Dataset, kept: np.ndarray | None, tokenizer: AnyTokenizer, max_length: int | None, rows: slice
) -> tuple[np.ndarray, int, Sentences]:
    table = text[rows]
    chosen = np.ones(len(table), bool) if kept is None else kept[rows].copy()
    table = table.filter(pa.array(chosen))
    source, target = (getattr(tokenizer, side).encode(table[side].to_pylist(), 1) for side in SIDES)
    pairs = list(zip(source, target, strict=True))
    fits = np.array([max_length is None or max(map(len, pair)) <= max_length for pair in pairs], bool)
    if kept is not None:
        pairs = [pair for pair, fit in zip(pairs, fits, strict=True) if fit]
        chosen[chosen] = fits
    return chosen, int((~fits).sum()), Sentences.of(list(itertools.chain.from_iterable(pairs)))


def chunks(rows: int) -> list[slice]:
    return [slice(start, min(start + CHUNK, rows)) for start in range(0, rows, CHUNK)]


def in_processes(work: Callable[[slice], Result], rows: int) -> Iterator[tuple[slice, Result]]:
    """Every chunk of so many rows, in order, with what `work` returns for it."""
    processes = min(torch.get_num_threads(), MOST_PROCESSES)
    if rows <= SMALL or processes == 1:
        yield from ((each, work(each)) for each in chunks(rows))
        return
    killed = kills_named("helped to prepare the data", "start again with fewer cores, such as threads=1")
    ahead: deque[tuple[slice, Future[Result]]] = deque()
    with killed, process_pool(processes, _set_work, work) as pool:
        for each in chunks(rows):
            ahead.append((each, pool.submit(_call_work, each)))
            if len(ahead) > 2 * processes:  # keeps all processes busy, and memory small
                first, result = ahead.popleft()
                yield first, result.result()
        for first, result in ahead:
            yield first, result.result()


# Given to a worker at its start, and not with each chunk: it holds the tokenizer, or all held-out text.
_work: Callable[[slice], Any]


def _set_work(work: Callable[[slice], Any]) -> None:
    global _work
    _work = work


def _call_work(rows: slice) -> Any:
    return _work(rows)


@contextmanager
def writing(path: Path, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
    """A function that writes tables to a file, as an Arrow stream."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        yield writer.write_table


def read_text(path: Path) -> Dataset:
    """The text of a split that `prepare` wrote, memory-mapped, as Arrow tables."""
    return Dataset.from_file(str(path)).with_format("arrow")
