"""Preparation of a corpus on disk: clean the text, train the tokenizer, encode.

The text is read in chunks, so memory stays small for a corpus of any size. It is read twice, since the tokenizer is
trained on clean text: corpus -> clean text (a temporary file) -> tokenizer -> text and pieces. Several processes work
on the chunks, and their results are put together in order: the number of processes does not change the result.
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
from headcount.data.cleaning import TOO_MANY_PIECES, CheckResult, Cleaning, CleaningReport, Filter, ForbiddenText
from headcount.data.corpora.corpus import SPLITS, Corpus, Pairs, further_names, one_line
from headcount.data.tokenizer import AnyTokenizer, Trainable, save_tokenizer
from headcount.data.workers import SIDES, Workers
from headcount.files import require_regular
from headcount.machine import cores
from headcount.progress import progress_bar

CHUNK = 2**14  # pairs in the chunk of one process
SMALL = 50_000  # pairs up to which one process is faster
MOST_PROCESSES = 32  # the process that reads and writes cannot keep more busy

logger = logging.getLogger(__name__)


def prepare(
    corpus: Corpus,
    cleaning: Cleaning,
    tokenizer: Trainable | AnyTokenizer,
    max_length: int | None,
    folder: Path,
    processes: int | None = None,
) -> None:
    """Write an Arrow file a split, the tokenizer and the cleaning report into `folder`, an empty folder.

    tokenizer: a trained one, or the settings of its training. max_length: most pieces of either side in train; longer
    pairs are dropped. processes: None for one a core, or only one for a small corpus.
    Raises InputError for errors in the text, see the parts, or if a process was killed.
    """
    logger.info("reading the corpus")
    splits = corpus.load()
    further_names(splits)
    total = count_pairs(splits)
    if processes is None:
        processes = min(cores(), MOST_PROCESSES) if total is None or total > SMALL else 1
    texts = {split: folder / f"{split}.text" for split in dict.fromkeys((*SPLITS, *splits))}
    with Workers(processes) as workers:
        logger.info("cleaning %s pairs", "the" if total is None else f"{total:,}")
        with progress_bar("cleaning", total) as advance:
            report = clean(splits, cleaning, texts, workers, advance)
        report.require_pairs()
        if isinstance(tokenizer, Trainable):
            logger.info("training the tokenizer, %s with %s pieces", tokenizer.model_type, f"{tokenizer.vocab_size:,}")
            most = tokenizer.sample_bytes
            tokenizer = tokenizer.train(*(training_text(texts["train"], side, most) for side in SIDES))
        logger.info("encoding")
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
    """The number of pairs in all splits; None if that of a split is known only after reading."""
    sizes = [pairs.num_rows for pairs in splits.values() if pairs.num_rows is not None]
    return sum(sizes) if len(sizes) == len(splits) else None


def training_text(path: Path, side: str, most: int) -> Iterator[str]:
    """One side of a file of clean text; if both sides have more than `most` bytes together, one side of a random sample
    of pairs of about that size, which is always the same."""
    size = sum(pc.sum(pc.binary_length(table[side])).as_py() or 0 for table in read_tables(path) for side in SIDES)
    share = min(1.0, most / max(size, 1))
    random = np.random.default_rng(0)  # the same pairs for both sides
    for table in read_tables(path):
        yield from table[side].filter(pa.array(random.random(len(table)) < share)).to_pylist()


def clean(
    splits: Mapping[str, Pairs | Dataset],
    cleaning: Cleaning,
    texts: Mapping[str, Path],
    workers: Workers,
    advance: Callable[[int], None],
) -> CleaningReport:
    """Write the kept pairs of every split into its file of `texts`; `advance` gets the number of pairs done."""
    counts: dict[str, dict[str, int]] = {}
    normal: dict[str, list[CheckResult]] = {split: [] for split in texts if split != "train"}

    def keep(split: str, forbidden: ForbiddenText | None) -> Iterator[pa.Table]:
        keeps = Filter(cleaning, filters=split == "train")
        for table, result in workers.each(partial(cleaning.check, forbidden=forbidden), _tables(splits[split])):
            kept = keeps(result)
            if keeps.filters:
                for side in SIDES:
                    table = table.set_column(table.column_names.index(side), side, getattr(result, side))
                table = table.filter(pa.array(kept))
            else:
                normal[split].append(result)
            advance(len(kept))
            yield table
        counts[split] = keeps.counts()

    for split in normal:
        write_tables(texts[split], keep(split, None))
    held_out = {split: ForbiddenText.of(results) for split, results in normal.items()}
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
        pa.array(encoder.encode(texts.to_pylist(), threads), type=kind)
        for encoder, texts in ((tokenizer.source, source), (tokenizer.target, target))
    ]


def _within_length(
    tables: Iterable[pa.Table], max_length: int, counts: dict[str, int], filters: bool
) -> Iterator[pa.Table]:
    """Count the pairs that are longer in `counts`, and drop them if `filters`."""
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


def read_sentences(path: Path, column: str) -> Sentences:
    """The piece numbers in a column of an Arrow stream, memory-mapped and not copied."""
    with pa.memory_map(str(path)) as source:
        file = source.read_buffer()
    starts, ends = [], []
    for batch in pa.ipc.open_stream(file):
        ids = batch.column(column)
        # The index of the batch's numbers in the file: Arrow aligns all arrays to 8 bytes.
        begin = (ids.values.buffers()[1].address - file.address) // 4 if len(ids.values) else 0
        offsets = begin + ids.offsets.to_numpy().astype(np.int64)
        starts.append(offsets[:-1])
        ends.append(offsets[1:])
    pieces = np.frombuffer(file, np.int32, len(file) // 4)
    return Sentences(pieces, np.concatenate(starts), np.concatenate(ends))
