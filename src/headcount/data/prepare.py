"""From a corpus to prepared data on disk: clean, train the tokenizer, encode.

The text streams through in chunks, so that memory stays small whatever the size of the corpus. It goes through twice,
since the tokenizer learns from clean text: corpus -> clean text (a temporary file) -> tokenizer -> text and pieces.
What can be done chunk by chunk is done by as many processes as may be used, and put together in order: their number
changes nothing in the result.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from headcount.data.batches import Sentences
from headcount.data.cleaning import TOO_MANY_PIECES, Cleaning, CleaningReport, Findings, ForbiddenText, Sieve
from headcount.data.corpora import SPLITS, Corpus, Pairs, further_names, one_line
from headcount.data.tokenizer import AnyTokenizer, Trainable, save_tokenizer
from headcount.data.workers import SIDES, Workers
from headcount.machine import cores
from headcount.progress import progress_bar

CHUNK = 2**14  # pairs worked on at once by one process
SMALL = 50_000  # pairs that are prepared without other processes
MOST_PROCESSES = 32  # this one, which reads and writes, has no work for more

log = logging.getLogger(__name__)


def prepare(
    corpus: Corpus,
    cleaning: Cleaning,
    tokenizer: Trainable | AnyTokenizer,
    max_length: int | None,
    folder: Path,
    processes: int | None = None,
) -> None:
    """Fills `folder`: an Arrow file a split, the tokenizer and the report of the cleaning.

    Args:
        corpus: where the text comes from.
        cleaning: what to drop from train.
        tokenizer: how to train one, or one that is trained.
        max_length: pieces a side may have in train, longer pairs are dropped.
        folder: is there, and empty.
        processes: that work at it; None for one a core, and one alone for a small corpus.

    Raises:
        InputError: something about the text, see the parts; or one of the processes was killed.
    """
    log.info("reading the corpus")
    splits = corpus.load()
    further_names(splits)
    total = count_pairs(splits)
    if processes is None:
        processes = min(cores(), MOST_PROCESSES) if total is None or total > SMALL else 1
    texts = {split: folder / f"{split}.text" for split in dict.fromkeys((*SPLITS, *splits))}
    with Workers(processes) as workers:
        log.info("cleaning %s pairs", "the" if total is None else f"{total:,}")
        with progress_bar("cleaning", total) as advance:
            report = clean(splits, cleaning, texts, workers, advance)
        report.require_pairs()
        if isinstance(tokenizer, Trainable):
            log.info("training the tokenizer, %s with %s pieces", tokenizer.model_type, f"{tokenizer.vocab_size:,}")
            most = tokenizer.sample_bytes
            tokenizer = tokenizer.train(*(training_text(texts["train"], side, most) for side in SIDES))
        log.info("encoding")
        with progress_bar("encoding", sum(counts["kept"] for counts in report.counts.values())) as advance:
            for split, path in texts.items():
                encoded = _encode(path, tokenizer, workers, advance)
                if max_length is not None:
                    encoded = _within_length(encoded, max_length, report.counts[split], filters=split == "train")
                write_tables(folder / f"{split}.arrow", encoded)
                path.unlink()
    report.require_pairs()
    save_tokenizer(tokenizer, folder)
    (folder / "report.json").write_text(json.dumps(report.as_dict(), indent=2) + "\n", encoding="utf-8")


def count_pairs(splits: Mapping[str, Pairs | Dataset]) -> int | None:
    """How many there are in all; None where a split does not know before it has been read."""
    known = [pairs.num_rows for pairs in splits.values() if pairs.num_rows is not None]
    return sum(known) if len(known) == len(splits) else None


def training_text(path: Path, side: str, most: int) -> Iterator[str]:
    """One side of a file of clean text; if both have more than `most` bytes, that of a random sample of pairs that have
    about that many, always the same ones."""
    size = sum(pc.sum(pc.binary_length(table[side])).as_py() or 0 for table in read_tables(path) for side in SIDES)
    share = min(1.0, most / max(size, 1))
    random = np.random.default_rng(0)  # for both sides the same pairs
    for table in read_tables(path):
        yield from table[side].filter(pa.array(random.random(len(table)) < share)).to_pylist()


def clean(
    splits: Mapping[str, Pairs | Dataset],
    cleaning: Cleaning,
    texts: Mapping[str, Path],
    workers: Workers,
    advance: Callable[[int], None],
) -> CleaningReport:
    """Writes what stays of every split into its file of `texts`; `advance` is told how many pairs are done."""
    counts: dict[str, dict[str, int]] = {}
    normal: dict[str, list[Findings]] = {split: [] for split in texts if split != "train"}

    def keep(split: str, forbidden: ForbiddenText | None) -> Iterator[pa.Table]:
        sieve = Sieve(cleaning, filters=split == "train")
        for table, findings in workers.each(partial(cleaning.check, forbidden=forbidden), _tables(splits[split])):
            stays = sieve(findings)
            if sieve.filters:
                for side in SIDES:
                    table = table.set_column(table.column_names.index(side), side, getattr(findings, side))
                table = table.filter(pa.array(stays))
            else:
                normal[split].append(findings)
            advance(len(stays))
            yield table
        counts[split] = sieve.counts()

    for split in normal:
        write_tables(texts[split], keep(split, None))
    held_out = {split: ForbiddenText.of(findings) for split, findings in normal.items()}
    if cleaning.enabled:
        for split in held_out.keys() - {"valid"}:
            counts[split] |= held_out[split].counts_in(held_out["valid"])
    write_tables(texts["train"], keep("train", ForbiddenText.of(held_out.values())))
    return CleaningReport({split: counts[split] for split in texts}, cleaning.tolerated, cleaning.enabled)


def _encode(
    path: Path, tokenizer: AnyTokenizer, workers: Workers, advance: Callable[[int], None]
) -> Iterator[pa.Table]:
    """The tables of a file of text with the columns `source_ids` and `target_ids`, int32 lists."""
    encode = partial(_piece_numbers, tokenizer, threads=cores() if workers.processes == 1 else 1)
    for table, ids in workers.each(encode, read_tables(path)):
        for side, column in zip(SIDES, ids, strict=True):
            table = table.append_column(f"{side}_ids", column)
        advance(len(table))
        yield table


def _piece_numbers(tokenizer: AnyTokenizer, source: pa.Array, target: pa.Array, threads: int) -> list[pa.Array]:
    kind = pa.list_(pa.int32())
    return [
        pa.array(own.encode(side.to_pylist(), threads), type=kind)
        for own, side in ((tokenizer.source, source), (tokenizer.target, target))
    ]


def _within_length(
    tables: Iterable[pa.Table], max_length: int, counts: dict[str, int], filters: bool
) -> Iterator[pa.Table]:
    """Enters into `counts` how many pairs are longer, and drops them if it `filters`."""
    counts[TOO_MANY_PIECES] = 0
    for table in tables:
        lengths = [pc.list_value_length(table[f"{side}_ids"]).to_numpy() for side in SIDES]
        fits = np.maximum(*lengths) <= max_length
        longer = int((~fits).sum())
        counts[TOO_MANY_PIECES] += longer
        if filters:
            counts["kept"] -= longer
            table = table.filter(pa.array(fits))
        yield table


def _tables(pairs: Pairs | Dataset) -> Iterator[pa.Table]:
    if isinstance(pairs, Pairs):
        yield from pairs.iter(CHUNK)
        return
    for table in pairs.with_format("arrow").iter(CHUNK):
        for side in SIDES:
            table = table.set_column(table.column_names.index(side), side, one_line(table[side]))
        yield table


def write_tables(path: Path, tables: Iterable[pa.Table]) -> None:
    """An Arrow stream of tables of one schema; no file where there are none."""
    with ExitStack() as stack:
        writer = None
        for table in tables:
            if writer is None:
                sink = stack.enter_context(pa.OSFile(str(path), "wb"))
                writer = stack.enter_context(pa.ipc.new_stream(sink, table.schema))
            writer.write_table(table.combine_chunks())


def read_tables(path: Path) -> Iterator[pa.Table]:
    """What `write_tables` wrote, memory-mapped."""
    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
        for batch in stream:
            yield pa.Table.from_batches([batch])


def read_sentences(path: Path, column: str) -> Sentences:
    """The piece numbers in a column of an Arrow stream; nothing is copied, they stay in the memory-mapped file."""
    with pa.memory_map(str(path)) as source:
        file = source.read_buffer()
    starts, ends = [], []
    for batch in pa.ipc.open_stream(file):
        ids = batch.column(column)
        # Where the batch has its numbers, as an index into the file: Arrow aligns everything in it to 8 bytes.
        begin = (ids.values.buffers()[1].address - file.address) // 4 if len(ids.values) else 0
        offsets = begin + ids.offsets.to_numpy().astype(np.int64)
        starts.append(offsets[:-1])
        ends.append(offsets[1:])
    pieces = np.frombuffer(file, np.int32, len(file) // 4)
    return Sentences(pieces, np.concatenate(starts), np.concatenate(ends))
