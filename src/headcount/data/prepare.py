"""Preparation of a corpus on disk: clean the text, train the tokenizer, encode.

The text is worked on in chunks, by several processes; their results are put together in order, so the number of
processes changes nothing. Of each split, SPLIT.arrow has the text, SPLIT.pieces all piece numbers (int32), and
SPLIT.offsets.npy where in it each sentence begins: source 0, target 0, source 1, ...
"""

import itertools
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TypeVar

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from datasets import Dataset

from headcount.data.batches import Sentences
from headcount.data.cleaning import TOO_MANY_PIECES, Cleaning, CleaningReport, Findings, Text
from headcount.data.corpora.corpus import SIDES, SPLITS, Corpus, further_names
from headcount.data.tokenizer import PAD, AnyTokenizer, SentencePiece, save_tokenizer
from headcount.errors import InputError
from headcount.files import new_directory
from headcount.processes import process_pool

CHUNK = 2**14  # pairs that a process works on at once
SMALL = 50_000  # pairs up to which one process is faster
MOST_PROCESSES = 32  # the process that writes cannot keep more busy
LINE_END = "[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]"

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
    kept: dict[str, np.ndarray] = {}
    counts: dict[str, dict[str, int]] = {}
    sizes: dict[str, int] = {}  # bytes of the kept text
    with new_directory(folder) as new:
        (new / "read").mkdir()
        texts = {split: on_disk(splits.pop(split), new / "read" / split) for split in (*SPLITS, *further_names(splits))}
        pa.default_memory_pool().release_unused()
        logger.info("cleaning %s pairs", f"{sum(map(len, texts.values())):,}")
        held_out = [cleaning.normal(Text.of(text[:])) for split, text in texts.items() if split != "train"]
        forbidden = Text(*map(pa.concat_arrays, zip(*held_out, strict=True)))
        for split, text in texts.items():
            work = partial(cleaning.check, text, forbidden if split == "train" else None)
            found = Findings(*map(np.concatenate, zip(*in_processes(work, len(text)), strict=True)))
            kept[split], counts[split] = cleaning.keep(found, filters=split == "train")
            sizes[split] = int(found.sizes[kept[split]].sum())
        report = CleaningReport(counts, cleaning.enabled)
        report.require_pairs()
        if isinstance(tokenizer, SentencePiece):
            logger.info(
                "training the tokenizer, %s with %s subwords", tokenizer.model_type, f"{tokenizer.vocab_size:,}"
            )
            share = tokenizer.sample_bytes / max(sizes["train"], 1)
            tokenizer = tokenizer.train(*training_text(texts["train"], kept["train"], share))
        save_tokenizer(tokenizer, new)
        logger.info("encoding")
        for split, text in texts.items():
            filters = (cleaning, kept[split]) if split == "train" else None
            longer = write_split(text, partial(encode, text, filters, tokenizer, max_length), new / split)
            if max_length is not None:
                counts[split][TOO_MANY_PIECES] = longer
                counts[split]["kept"] -= longer if split == "train" else 0
        report.require_pairs()
        (new / "report.json").write_text(json.dumps(asdict(report), indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(new / "read")
        if corpus.fingerprint() != before:
            raise InputError("the text of the corpus changed while it was prepared; start again")
    logger.info("%s", report.table())


def on_disk(pairs: Dataset, path: Path) -> Dataset:
    """The pairs of a split, each text one line, memory-mapped from the new file `path`.arrow, as Arrow tables."""
    if not len(pairs):
        raise InputError(f"the {path.name} split of the corpus holds no pairs; give it at least one")
    datasets.disable_progress_bars()
    written = {"cache_file_name": f"{path}.arrow", "new_fingerprint": "lines"}
    return pairs.with_format("arrow").map(_in_lines, batched=True, batch_size=CHUNK, **written)


def _in_lines(table: pa.Table) -> pa.Table:
    """Text without line ends, since files have a sentence a line: null becomes the empty text, and all characters at
    which `str.splitlines` cuts become spaces."""
    text = (pc.fill_null(table[side].cast(pa.string()), "") for side in SIDES)
    return Text(*(pc.replace_substring_regex(side, LINE_END, " ") for side in text)).within(table)


def training_text(text: Dataset, kept: np.ndarray, share: float) -> list[list[str]]:
    """Both sides of a random share of the kept pairs, always the same ones; a share of 1 or more is all of them."""
    rows = np.flatnonzero(kept)
    sample = text.select(rows[np.random.default_rng(0).random(len(rows)) < share])[:]
    return [sample[side].to_pylist() for side in SIDES]


def write_split(text: Dataset, work: Callable[[slice], tuple[pa.Table, int, Sentences]], path: Path) -> int:
    """Write the text and the pieces that `work`, as of `encode`, gives; `path` has the name of the split. Returns how
    many pairs have too many pieces on a side."""
    longer, lengths = 0, [np.ones((1, 1), np.int64)]
    arrow, schema = pa.OSFile(str(path.with_suffix(".arrow")), "wb"), text[:0].schema.remove_metadata()
    with arrow, pa.ipc.new_stream(arrow, schema) as stream, path.with_suffix(".pieces").open("wb") as file:
        file.write(np.int32(PAD).tobytes())  # an empty file cannot be mapped
        for table, found, ids in in_processes(work, len(text)):
            stream.write_table(table)
            longer += found
            file.write(ids.pieces.tobytes())
            lengths.append(ids.lengths[:, None] - 1)
    np.save(path.with_suffix(".offsets.npy"), np.cumsum(np.concatenate(lengths)))
    return longer


def encode(
    text: Dataset,
    filters: tuple[Cleaning, np.ndarray] | None,
    tokenizer: AnyTokenizer,
    max_length: int | None,
    rows: slice,
) -> tuple[pa.Table, int, Sentences]:
    """The pairs of these rows as they are stored, how many have more than `max_length` pieces on a side, and the pieces
    of the stored ones: source 0, target 0, source 1, ...

    filters: the cleaning, and which pairs it keeps, bool [pair]: these are stored, normalised, if they are within
    `max_length`. None: all pairs are stored as they are.
    """
    table = text[rows]
    if filters is not None:
        table = table.filter(pa.array(filters[1][rows]))
        table = filters[0].normal(Text.of(table)).within(table)
    source, target = (getattr(tokenizer, side).encode(table[side].to_pylist(), 1) for side in SIDES)
    pairs = list(zip(source, target, strict=True))
    fits = np.array([max_length is None or max(map(len, pair)) <= max_length for pair in pairs], bool)
    if filters is not None:
        pairs = [pair for pair, fit in zip(pairs, fits, strict=True) if fit]
        table = table.filter(pa.array(fits))
    return table, int((~fits).sum()), Sentences.of(list(itertools.chain.from_iterable(pairs)))


def in_processes(work: Callable[[slice], Result], rows: int) -> Iterator[Result]:
    """What `work` returns for every chunk of so many rows, in order."""
    chunks = [slice(start, min(start + CHUNK, rows)) for start in range(0, rows, CHUNK)]
    processes = min(torch.get_num_threads(), MOST_PROCESSES)
    if rows <= SMALL or processes == 1:
        yield from map(work, chunks)
        return
    with process_pool(processes, "helped to prepare the data", "start again with threads=1") as pool:
        yield from pool.map(work, chunks)
