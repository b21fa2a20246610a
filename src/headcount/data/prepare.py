"""Preparation of a corpus on disk: clean the text, train the tokenizer, encode.

The text is read in chunks, so memory stays small for a corpus of any size: corpus -> checked text -> tokenizer -> text
and pieces. Train is divided into shards, whose files lie in a folder beside the result until all is done. So a
preparation that was stopped goes on, and several machines can work on one. Several processes of a machine work on the
chunks, and their results are put together in order: neither processes nor machines change the result.
"""

import json
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset
from filelock import FileLock

from headcount.data.arrow import write_tables
from headcount.data.cleaning import (
    CHECKED,
    TOO_MANY_PIECES,
    CheckResult,
    Cleaning,
    CleaningReport,
    Filter,
    ForbiddenText,
)
from headcount.data.corpora.corpus import SPLITS, Corpus, Pairs, further_names, one_line
from headcount.data.shards import Numbered, Shards, numbered
from headcount.data.tokenizer import AnyTokenizer, Trainable, load_tokenizer, save_tokenizer
from headcount.data.workers import SIDES, Workers
from headcount.errors import InputError, UnreachableError
from headcount.files import new_directory, read_json, waiting, write_text
from headcount.processes import WorkerKilledError, cores
from headcount.progress import progress_bar

CHUNK = 2**14  # pairs in the chunk of one process
SMALL = 50_000  # pairs up to which one process is faster
MOST_PROCESSES = 32  # the process that reads and writes cannot keep more busy
BITS, KEYS = "_checks", "_key"  # columns of checked text: a bit for each of `CHECKED` and for normalised; `keys`

logger = logging.getLogger(__name__)


def prepare(
    corpus: Corpus,
    cleaning: Cleaning,
    tokenizer: Trainable | AnyTokenizer,
    max_length: int | None,
    folder: Path,
    processes: int | None = None,
    threads: int | None = None,
    is_same: Callable[[], bool] = lambda: True,
) -> None:
    """Write an Arrow file a split, the tokenizer and the cleaning report into `folder`, which appears when it is whole.

    The work is done in the folder `folder`.part. Where that is from a preparation that was stopped, or another machine
    works in it, this goes on with what is missing.

    tokenizer: a trained one, or the settings of its training. max_length: most pieces of either side in train; longer
    pairs are dropped. processes: None for one a core, or only one for a small corpus. threads: cores to use; None: all.
    is_same: whether the text is still that of the beginning, asked at the end.
    Raises InputError for errors in the text, see the parts, where it changed meanwhile, or if a process was killed.
    """
    part = folder.with_suffix(".part")
    try:
        _prepare(corpus, cleaning, tokenizer, max_length, folder, part, processes, threads or cores(), is_same)
    except (OSError, InputError) as error:
        if not folder.is_dir():  # else another machine has finished, and removed what this one was to read
            if isinstance(error, InputError) and not isinstance(error, WorkerKilledError | UnreachableError):
                shutil.rmtree(part, ignore_errors=True)  # the same text would have the same error
            raise
    shutil.rmtree(part, ignore_errors=True)


def _prepare(
    corpus: Corpus,
    cleaning: Cleaning,
    tokenizer: Trainable | AnyTokenizer,
    max_length: int | None,
    folder: Path,
    part: Path,
    processes: int | None,
    threads: int,
    is_same: Callable[[], bool],
) -> None:
    logger.info("reading the corpus")
    splits = corpus.load()
    names = list(dict.fromkeys((*SPLITS, *splits)))
    further_names(splits)
    total = count_pairs(splits)
    if processes is None:
        processes = min(threads, MOST_PROCESSES) if total is None or total > SMALL else 1
    with Workers(processes) as workers:
        logger.info("cleaning %s pairs", "the" if total is None else f"{total:,}")
        with progress_bar("cleaning", total) as advance:
            held_out, counts = check_held_out(splits, names, cleaning, workers, advance)
            forbidden = ForbiddenText.of(held_out.values())
            checked = check_train(splits["train"], cleaning, forbidden, workers, part / "checked", advance)
        with waiting(FileLock(part / "filtered.lock"), "another process filters this corpus"):
            filtered = part / "filtered"
            if not (filtered / "report.json").is_file():
                _clear(filtered)
                with new_directory(filtered) as new:
                    report = filter_train(checked, cleaning, counts, names, new)
                    report.require_pairs()
                    save_tokenizer(_trained(tokenizer, partial(kept_text, checked, new)), new)
                    _save_report(report, new)
        report, tokenizer = CleaningReport.from_dict(read_json(filtered / "report.json")), load_tokenizer(filtered)
        logger.info("encoding")
        with progress_bar("encoding", sum(each["kept"] for each in report.counts.values())) as advance:
            encoded = Shards(part / "encoded")
            encode = partial(_encode, tokenizer=tokenizer, workers=workers, threads=threads)
            encoded.fill(lambda: kept_text(checked, filtered), encode, advance)
            with waiting(FileLock(part / "whole.lock"), "another process puts this corpus together"):
                if folder.is_dir():
                    return
                whole = part / "whole"
                _clear(whole)
                with new_directory(whole) as new:
                    for split in names:
                        text = numbered(text_tables(splits[split]))
                        tables = encoded.read() if split == "train" else encode(_counted(text, advance))
                        fitting = _within_length(tables, max_length, report.counts[split], filters=split == "train")
                        write_tables(new / f"{split}.arrow", fitting)
                    report.require_pairs()
                    save_tokenizer(tokenizer, new)
                    _save_report(report, new)
                if not is_same():
                    raise InputError("the text of the corpus changed while it was prepared; start again")
                whole.rename(folder)


def _clear(folder: Path) -> None:
    """Remove what a process that was killed left of a folder, whole or as `new_directory` began it."""
    for left in (folder, *folder.parent.glob(f".{folder.name}.*.part")):
        shutil.rmtree(left, ignore_errors=True)


def count_pairs(splits: Mapping[str, Pairs | Dataset]) -> int | None:
    """The number of pairs in all splits; None if that of a split is known only after reading."""
    sizes = [pairs.num_rows for pairs in splits.values() if pairs.num_rows is not None]
    return sum(sizes) if len(sizes) == len(splits) else None


def check_held_out(
    splits: Mapping[str, Pairs | Dataset],
    names: Iterable[str],
    cleaning: Cleaning,
    workers: Workers,
    advance: Callable[[int], None],
) -> tuple[dict[str, ForbiddenText], dict[str, dict[str, int]]]:
    """The normalised text of every split but train, and its counts for the cleaning report."""
    counts, texts = {}, {}
    for split in names:
        if split == "train":
            continue
        keeps, results = Filter(cleaning, filters=False), []
        tables = numbered(text_tables(splits[split]))
        for _, _, result in workers.each(partial(cleaning.check, forbidden=None), _counted(tables, advance)):
            keeps(result)
            results.append(result)
        counts[split], texts[split] = keeps.counts(), ForbiddenText.of(results)
    if cleaning.enabled:
        for split in texts.keys() - {"valid"}:
            counts[split] |= texts[split].counts_in(texts["valid"])
    return texts, counts


def check_train(
    train: Pairs | Dataset,
    cleaning: Cleaning,
    forbidden: ForbiddenText,
    workers: Workers,
    folder: Path,
    advance: Callable[[int], None],
) -> Shards:
    """The normalised text of train with the result of `Cleaning.check`, in the columns `BITS` and `KEYS`."""

    def work(tables: Numbered) -> Numbered:
        for shard, table, result in workers.each(partial(cleaning.check, forbidden=forbidden), tables):
            for side in SIDES:
                table = table.set_column(table.column_names.index(side), side, getattr(result, side))
            bits = np.packbits(np.column_stack([result.reasons, result.normalised]), axis=1)
            table = table.append_column(BITS, pa.array(bits[:, 0]))
            yield shard, table.append_column(KEYS, pa.array(result.keys)) if len(result.keys) else table

    shards = Shards(folder)
    shards.fill(lambda: numbered(text_tables(train)), work, advance)
    return shards


def filter_train(
    checked: Shards, cleaning: Cleaning, counts: Mapping[str, dict[str, int]], names: Iterable[str], folder: Path
) -> CleaningReport:
    """Write which pairs of the checked text are kept, a bit each, into `folder`; the report of all splits."""
    keeps = Filter(cleaning, filters=True)
    kept = [np.packbits(keeps(_check_result(table))) for _, table in checked.read()]
    np.save(folder / "kept.npy", np.concatenate([*kept, np.empty(0, np.uint8)]))
    every = {**counts, "train": keeps.counts()}
    return CleaningReport({split: every[split] for split in names}, cleaning.tolerated, cleaning.enabled)


def _check_result(table: pa.Table) -> CheckResult:
    bits = np.unpackbits(table[BITS].to_numpy()[:, None], axis=1)[:, : len(CHECKED) + 1].astype(bool)
    keys = table[KEYS].to_numpy() if KEYS in table.column_names else np.empty(0, np.uint64)
    return CheckResult(table["source"], table["target"], bits[:, -1], bits[:, :-1], keys)


def kept_text(checked: Shards, filtered: Path) -> Iterator[tuple[int, pa.Table]]:
    """The pairs of train that `filter_train` kept, without its columns, each table with the number of its shard."""
    kept, start = np.load(filtered / "kept.npy", mmap_mode="r"), 0
    for shard, table in checked.read():
        end = start + -(-len(table) // 8)
        mask = np.unpackbits(kept[start:end], count=len(table)).astype(bool)
        yield shard, table.drop_columns([name for name in (BITS, KEYS) if name in table.column_names]).filter(mask)
        start = end


def _trained(tokenizer: Trainable | AnyTokenizer, text: Callable[[], Iterator[tuple[int, pa.Table]]]) -> AnyTokenizer:
    if not isinstance(tokenizer, Trainable):
        return tokenizer
    logger.info("training the tokenizer, %s with %s pieces", tokenizer.model_type, f"{tokenizer.vocab_size:,}")
    size = sum(pc.sum(pc.binary_length(table[side])).as_py() or 0 for _, table in text() for side in SIDES)
    return tokenizer.train(*(training_text(text(), side, tokenizer.sample_bytes / max(size, 1)) for side in SIDES))


def training_text(text: Numbered, side: str, share: float) -> Iterator[str]:
    """One side of all pairs, or with a `share` below 1 of so large a random sample, always the same pairs."""
    random = np.random.default_rng(0)  # the same pairs for both sides
    for _, table in text:
        yield from table[side].filter(pa.array(random.random(len(table)) < share)).to_pylist()


def _encode(
    tables: Numbered, tokenizer: AnyTokenizer, workers: Workers, threads: int
) -> Iterator[tuple[int, pa.Table]]:
    """The tables with the columns `source_ids` and `target_ids`, int32 lists."""
    encode = partial(_piece_numbers, tokenizer, threads=threads if workers.processes == 1 else 1)
    for shard, table, ids in workers.each(encode, tables):
        for side, column in zip(SIDES, ids, strict=True):
            table = table.append_column(f"{side}_ids", column)
        yield shard, table


def _piece_numbers(tokenizer: AnyTokenizer, source: pa.Array, target: pa.Array, threads: int) -> list[pa.Array]:
    kind = pa.list_(pa.int32())
    return [
        pa.array(encoder.encode(texts.to_pylist(), threads), type=kind)
        for encoder, texts in ((tokenizer.source, source), (tokenizer.target, target))
    ]


def _within_length(
    tables: Numbered, max_length: int | None, counts: dict[str, int], filters: bool
) -> Iterator[pa.Table]:
    """Count the pairs that are longer in `counts`, and drop them if `filters`; None for no limit."""
    for _, table in tables:
        if max_length is not None:
            lengths = [pc.list_value_length(table[f"{side}_ids"]).to_numpy() for side in SIDES]
            fits = np.maximum(*lengths) <= max_length
            longer = int((~fits).sum())
            counts[TOO_MANY_PIECES] = counts.get(TOO_MANY_PIECES, 0) + longer
            if filters:
                counts["kept"] -= longer
                table = table.filter(pa.array(fits))
        yield table


def _save_report(report: CleaningReport, folder: Path) -> None:
    write_text(folder / "report.json", json.dumps(report.as_dict(), indent=2) + "\n")


def _counted(tables: Numbered, advance: Callable[[int], None]) -> Iterator[tuple[int, pa.Table]]:
    for shard, table in tables:
        advance(len(table))
        yield shard, table


def text_tables(pairs: Pairs | Dataset) -> Iterator[pa.Table]:
    """The text of a split in chunks, each `one_line`."""
    if isinstance(pairs, Pairs):
        yield from pairs.iter(CHUNK)
        return
    for table in pairs.with_format("arrow").iter(CHUNK):
        for side in SIDES:
            table = table.set_column(table.column_names.index(side), side, one_line(table[side]))
        yield table
