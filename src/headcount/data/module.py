"""Lightning data module: prepares a corpus once, and serves its batches."""

import hashlib
import json
import logging
import math
import os
import platform
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytorch_lightning as pl
import torch
from datasets import Dataset, DatasetDict, concatenate_datasets
from filelock import FileLock
from torch.utils.data import DataLoader

from headcount.data.arrow import check_tables, read_sentences
from headcount.data.batches import Batch, Resample, Sentences, SplitBatches, TrainStream
from headcount.data.cleaning import Cleaning, CleaningReport
from headcount.data.corpora.corpus import Corpus, further_names, language_codes
from headcount.data.plan import BatchRamp, Epochs, Lengthening, few_batches, plan_split, round_up
from headcount.data.prepare import prepare
from headcount.data.shared import remove, shared_arrays
from headcount.data.subword_sampling import Segmentation, sample_pieces
from headcount.data.tokenizer import AnyTokenizer, SentencePiecePair, TokenizerPair, Trainable, load_tokenizer
from headcount.data.workers import SIDES
from headcount.errors import InputError, printable
from headcount.files import naming, read_json, waiting

FORMAT = 4  # part of the key of prepared data: raise it when the stored format changes, or that of a shard
BOTH_WAYS = ("train", "valid")  # splits that data.both_directions doubles; scores of test stay comparable
MOST_PADDED_TO = 64  # more would be mostly padding
PADDED_TO = {True: 1, False: 8}  # data.pad_to=auto, by whether an epoch has `few_batches`
MOST_WORKERS = 256  # more processes would end the machine before training
MANY_PAIRS = 1_000_000  # from which processes share the plan of an epoch and where each sentence lies
LENGTH_SAMPLE = 2000  # pairs on which lengths with subword sampling are measured

logger = logging.getLogger(__name__)


class TranslationData(pl.LightningDataModule):
    """Batches of a parallel corpus.

    `prepare_data` sets these attributes:
    tokenizer: the trained tokenizer, or the pair. data: the splits train, valid, test and further test sets,
    memory-mapped, with the columns `source`, `target`, `source_ids`, `target_ids` (without BOS and EOS) and any others
    of the corpus; all splits but train have every pair of the corpus, in order. report: the cleaning report. prepared:
    the folder of all this, `<directory>/prepared/<key>`; the key is a hash of the corpus and of all settings that
    change the prepared data.

    Training batches are endless, epoch after epoch, and are counted in optimizer steps. To resume a run, set
    `start_step` before `train_dataloader` is called. With `shares`, set before `prepare_data`, the processes that train
    share what has a number for each pair of a large corpus, in `<directory>/prepared/<key>.shared`.

    conf/train.yaml explains the settings. tokenizer: a trained one, or the settings of its training. seed: of
    the order of batches. max_length: None for no limit but `batch_tokens`. accumulation: micro-batches in one optimizer
    step of one process. segmentation: None for always the best segmentation. A sentence keeps its best segmentation in
    an epoch if the sampled one exceeds its batch or `max_length`. both_directions: train and valid hold all pairs, and
    then all pairs with their sides exchanged, without the further columns of the corpus.
    """

    tokenizer: AnyTokenizer
    data: DatasetDict
    report: CleaningReport
    prepared: Path

    def __init__(
        self,
        *,
        corpus: Corpus,
        tokenizer: Trainable | AnyTokenizer,
        cleaning: Cleaning,
        batch_tokens: int,
        batch_ramp: int | None,
        batch_ramp_start: float,
        directory: str | Path,
        seed: int,
        max_length: int | None,
        workers: int,
        accumulation: int,
        hide_source: bool,
        both_directions: bool,
        segmentation: Segmentation | None,
        pad_to: int | str,
    ) -> None:
        super().__init__()
        _require("data.batch_tokens", batch_tokens, least=1, example="4096")
        _require("data.max_length", max_length, least=1, example="128, or null for no limit")
        if not isinstance(pad_to, str):
            example = "8, or 1 for no more than needed"
            _require("data.pad_to", pad_to, least=1, most=MOST_PADDED_TO, example=example)
        elif pad_to != "auto":
            raise ValueError(f"data.pad_to={printable(pad_to)}: must be a number of tokens, such as 8, or auto")
        _require("data.workers", workers, least=0, most=MOST_WORKERS, example="2, or 0 for none")
        _require("trainer.accumulate_grad_batches", accumulation, least=1, example="1")
        _require("seed", seed, least=0, example="1")
        multiple = max(PADDED_TO.values()) if isinstance(pad_to, str) else pad_to
        if max_length is not None and round_up(max_length + 1, multiple) > batch_tokens:
            raise ValueError(
                f"data.max_length={max_length} does not fit into data.batch_tokens={batch_tokens}: a sentence "
                "takes its pieces and one token more; give a smaller data.max_length or more data.batch_tokens"
            )
        _check_segmentation(segmentation, tokenizer)
        if both_directions:
            _check_both_directions(tokenizer, hide_source)
        self.corpus = corpus
        self.cleaning = cleaning
        self.batch_tokens = batch_tokens
        self.ramp = BatchRamp(batch_ramp, batch_ramp_start) if batch_ramp else None
        self.directory = Path(directory)
        self.seed = seed
        self.max_length = max_length
        self.workers = workers
        self.accumulation = accumulation
        self.hide_source = hide_source
        self.both_directions = both_directions
        self.segmentation = segmentation
        self._pad_to = pad_to
        self.start_step = 0
        self.shares = False
        self.threads: int | None = None  # cores that prepare the corpus; None: all
        self.source_language, self.target_language = language_codes(corpus.source_language, corpus.target_language)
        self._tokenizer = tokenizer
        self._sentences: dict[str, tuple[Sentences, Sentences]] = {}
        self._epochs: Epochs | None = None

    def use_tokenizer(self, tokenizer: AnyTokenizer) -> None:
        """Encode with this tokenizer instead of training one; call it before `prepare_data`.

        Data that was prepared by training the same tokenizer is used if there is any.
        """
        trained = self._folder()
        if not trained.is_dir() or load_tokenizer(trained).fingerprint() != tokenizer.fingerprint():
            self._tokenizer = tokenizer
        self._sentences = {}
        self._epochs = None

    def prepare_data(self) -> None:
        """Clean, train the tokenizer, encode and store, unless that has been done; then open the prepared data.

        Several processes may call it at once: one of each machine builds, see `prepare`.
        Raises InputError for errors in the text; see the parts.
        """
        if self._sentences:
            return
        self.prepared = self._folder()
        if not self.prepared.is_dir():
            self._build()
        self._open()
        logger.info(
            "%s to %s, in %s\n%s", self.source_language, self.target_language, self.prepared, self.report.table()
        )

    @property
    def is_prepared(self) -> bool:
        """Whether the prepared data is in `directory`, so that `prepare_data` only reads."""
        return self._folder().is_dir()

    def check_prepared(self) -> None:
        """Check prepared data that somebody else may have written, before it is opened. Raises InputError where it is
        not what `prepare` writes."""
        try:
            tokenizer = load_tokenizer(self._folder())
            for path in sorted(self._folder().glob("*.arrow")):
                check_tables(path, tokenizer)
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            raise self._damaged(self._folder(), error) from error

    @staticmethod
    def _damaged(folder: Path, error: Exception) -> InputError:
        return InputError(f"{folder} is damaged ({error}); delete this folder, it will be built again")

    def _build(self) -> None:
        self.prepared.parent.mkdir(parents=True, exist_ok=True)
        machine = hashlib.sha256(platform.node().encode()).hexdigest()[:8]  # others help, see `prepare`
        lock = FileLock(self.prepared.with_suffix(f".{machine}.lock"))
        with waiting(lock, "another process prepares this corpus"), naming(self.prepared):
            if not self.prepared.is_dir():
                remove(self.prepared.with_suffix(".shared"))  # it has places in the files of a folder that is gone
                what = self.corpus, self.cleaning, self._tokenizer, self.max_length
                prepare(*what, self.prepared, threads=self.threads, is_same=lambda: self._folder() == self.prepared)

    def _folder(self) -> Path:
        settings = {
            "format": FORMAT,
            "corpus": self.corpus.fingerprint(),
            "cleaning": asdict(self.cleaning),
            "tokenizer": self._tokenizer.fingerprint(),
            "max_length": self.max_length,
        }
        key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
        return self.directory / "prepared" / key

    def setup(self, stage: str | None = None) -> None:
        self.prepare_data()  # Lightning calls prepare_data in only one process of a machine

    def train_dataloader(self) -> DataLoader[Batch]:
        """Endless batches of this process, from optimizer step `start_step`."""
        rank, world_size = self._rank_and_world_size()
        resample = self._resampling(self.segmentation) if self.segmentation else None
        stream = TrainStream(*self._sentences["train"], self.epochs, rank, world_size, self.start_step, resample)
        return self._loader(stream)

    def _resampling(self, segmentation: Segmentation) -> Resample:
        pairs, best = self.data["train"].select_columns(["source", "target"]), self._sentences["train"]
        return Resampling(pairs, best, self.tokenizer, segmentation, self._most_sampled(), self.hide_source)

    def _lengthening(self) -> tuple[Lengthening, Lengthening] | None:
        """The lengthening by subword sampling, measured on a sample that is the same in every process."""
        if self.segmentation is None:
            return None
        best = self._sentences["train"]
        size = len(best[0].starts)
        rows = np.sort(np.random.default_rng(0).choice(size, min(size, LENGTH_SAMPLE), replace=False))
        sampled = self._resampling(self.segmentation)(rows, (0,), self.batch_tokens)
        source, target = (
            Lengthening.measured(each.lengths[rows], new.lengths) for each, new in zip(best, sampled, strict=True)
        )
        return source, target

    def val_dataloader(self) -> DataLoader[Batch]:
        return self.split_batches("valid")

    def split_batches(self, split: str) -> DataLoader[Batch]:
        """This process's share of a split, each sentence once, in batches of similar lengths, as in `plan_split`."""
        source, target = self._sentences[split]
        rank, world_size = self._rank_and_world_size()
        sizes = {"batch_tokens": self.batch_tokens, "world_size": world_size, "pad_to": self.pad_to}
        plan = plan_split(source.lengths, target.lengths, **sizes)
        return self._loader(SplitBatches(source, target, plan, rank, world_size, self.pad_to))

    @property
    def epochs(self) -> Epochs:
        """The plans of all training epochs."""
        multiple = self._rank_and_world_size()[1] * self.accumulation
        if self._epochs is None or self._epochs.multiple != multiple:
            start = self.segmentation.start_epoch if self.segmentation else 0
            sampled = self._lengthening(), start
            own = self.batch_tokens, self.seed, multiple
            self._epochs = Epochs(*self._lengths(), *own, *sampled, self.ramp, self.pad_to)
            if self._shared:
                key = hashlib.sha256(self._plan_key().encode()).hexdigest()[:16]
                self._epochs.shared = (self._shared / "plans", key)
        return self._epochs

    @property
    def pad_to(self) -> int:
        """The number that the lengths of a batch are padded to a multiple of."""
        return PADDED_TO[self._few_batches] if self._pad_to == "auto" else int(self._pad_to)

    @property
    def _few_batches(self) -> bool:
        return few_batches(*self._lengths(), self.batch_tokens)

    def _lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens of every source and target of train, with EOS: int32, half the size of the sentences' own."""

        def make() -> dict[str, np.ndarray]:
            sides = zip(SIDES, self._sentences["train"], strict=True)
            return {name: side.lengths.astype(np.int32) for name, side in sides}

        kind = "lengths" + "_both" * self.both_directions + "_hidden" * self.hide_source
        arrays = shared_arrays(self._shared / kind, make) if self._shared else make()
        return arrays["source"], arrays["target"]

    @property
    def _shared(self) -> Path | None:
        """The folder of what has a number for each pair of train, where processes share that."""
        worth_it = self.shares and len(self.data["train"]) >= MANY_PAIRS and os.access(self.prepared.parent, os.W_OK)
        return self.prepared.with_suffix(".shared") if worth_it else None

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint: the steps of all epochs so far, so that a resumed run does not plan them again."""
        self.epochs.locate(self.trainer.global_step if self.trainer else 0)
        return {"plan": self._plan_key(), "steps": self.epochs.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["plan"] == self._plan_key():
            self.epochs.steps = list(state["steps"])

    def _plan_key(self) -> str:
        """All that determines the plans."""
        epochs = self.epochs
        values = [self.prepared.name, epochs.batch_tokens, epochs.seed, epochs.multiple, epochs.lengthening]
        values += [epochs.start_epoch] if epochs.start_epoch else []
        values += ["both directions"] if self.both_directions else []
        values += [self.ramp] if self.ramp else []
        values += ["by the longer side"] if self._few_batches else []
        values += [f"padded to {self.pad_to}"] if self.pad_to > 1 else []
        return f"{values} {self.hide_source}"

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps of the first epoch; later epochs differ by a few per cent."""
        return self.epochs.steps_of(0)

    @property
    def padding(self) -> float:
        """Share of padding in all tokens of the first epoch, both sides, 0 to 1."""
        return self.epochs.plan(0).padding

    @property
    def global_batch_tokens(self) -> float:
        """Real source and target tokens of an optimizer step of all processes, the mean of the first epoch."""
        plan = self.epochs.plan(0)
        return plan.tokens / plan.steps

    @property
    def mean_lengths(self) -> tuple[int, int]:
        """Mean tokens of a source and of a target in train, rounded, with EOS."""
        source, target = (round(float(lengths.mean())) for lengths in self._lengths())
        return source, target

    def longest(self, split: str) -> tuple[int, int]:
        """Most tokens of a source and of a target of a split, with EOS; with subword sampling, the most possible."""
        every = self._lengths() if split == "train" else (side.lengths for side in self._sentences[split])
        source, target = (int(lengths.max(initial=0)) for lengths in every)
        if split == "train" and self.segmentation is not None:
            most = self._most_sampled()
            return source if self.hide_source else max(source, most), max(target, most)
        return source, target

    def _most_sampled(self) -> int:
        """Most tokens of a sentence with subword sampling, with EOS."""
        return min(self.batch_tokens, (self.max_length or self.batch_tokens) + 1)

    def epoch_of(self, step: int) -> float:
        """The number of epochs after `step` optimizer steps, with a fraction."""
        epoch, done = self.epochs.locate(step)
        return epoch + done / self.epochs.steps_of(epoch)

    @property
    def held_out_splits(self) -> list[str]:
        """The splits to score on: valid, test, and further test sets."""
        return [split for split in self.data if split != "train"]

    def _open(self) -> None:
        try:
            report = read_json(self.prepared / "report.json")
            self.report = CleaningReport.from_dict(report)
            further_names(self.report.counts)  # they become names of files
            self.tokenizer = load_tokenizer(self.prepared)
            paths = {split: self.prepared / f"{split}.arrow" for split in self.report.counts}
            self.data = DatasetDict({split: Dataset.from_file(str(path)) for split, path in paths.items()})
            self.one_way = DatasetDict(self.data)  # without the reversed pairs that `both_directions` adds
            self._sentences = {split: self._read(path) for split, path in paths.items()}
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            raise self._damaged(self.prepared, error) from error
        for split in BOTH_WAYS if self.both_directions else ():
            self.data[split] = _with_reversed(self.data[split])
            self._sentences[split] = _with_reversed_pieces(*self._sentences[split])
        if self.hide_source:
            for split, (source, target) in self._sentences.items():
                self._sentences[split] = (_hidden(source), target)

    def _read(self, path: Path) -> tuple[Sentences, Sentences]:
        """The pieces of both sides of a split."""
        index = self._shared if path.stem == "train" else None
        source, target = (read_sentences(path, f"{side}_ids", index) for side in SIDES)
        return source, target

    def _loader(self, batches: TrainStream | SplitBatches) -> DataLoader[Batch]:
        # Memory that is pinned opens the GPU, so not where a run on the CPU has no use for it.
        pins = self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"
        return DataLoader(batches, batch_size=None, num_workers=self.workers, pin_memory=pins, shuffle=None)

    def _rank_and_world_size(self) -> tuple[int, int]:
        if self.trainer is not None:
            return self.trainer.global_rank, self.trainer.world_size
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


@dataclass(frozen=True)
class Resampling:
    """Subword sampling of rows of train; a sentence that becomes too long keeps its best segmentation.

    most: tokens of a sampled sentence, with EOS. A class, so that it can be sent to another process.
    """

    pairs: Dataset
    best: tuple[Sentences, Sentences]
    tokenizer: AnyTokenizer
    segmentation: Segmentation
    most: int
    hide_source: bool

    def __call__(self, rows: np.ndarray, seed: tuple[int, ...], longest: int) -> tuple[Sentences, Sentences]:
        texts, limit = self.pairs[rows], min(longest, self.most)
        sides = []
        for number, (side, best) in enumerate(zip(SIDES, self.best, strict=True)):
            sampled = sample_pieces(getattr(self.tokenizer, side), texts[side], self.segmentation, (*seed, number))
            ids = [new if len(new) < limit else best.row(row) for row, new in zip(rows, sampled, strict=True)]
            sides.append(Sentences.of(ids))
        return (_hidden(sides[0]) if self.hide_source else sides[0]), sides[1]


def _hidden(source: Sentences) -> Sentences:
    return Sentences(source.pieces[:0], np.zeros_like(source.starts), np.zeros_like(source.ends))


def _with_reversed(pairs: Dataset) -> Dataset:
    """The pairs, then each with its sides exchanged."""
    there = {"source": "target", "target": "source", "source_ids": "target_ids", "target_ids": "source_ids"}
    pairs = pairs.select_columns(list(there))
    return concatenate_datasets([pairs, pairs.rename_columns(there)])


def _with_reversed_pieces(source: Sentences, target: Sentences) -> tuple[Sentences, Sentences]:
    # Both are columns of one file, so that the pieces of either are the pieces of both.
    starts, ends = (source.starts, target.starts), (source.ends, target.ends)
    one, other = (
        replace(source, starts=np.concatenate(starts[::way]), ends=np.concatenate(ends[::way])) for way in (1, -1)
    )
    return one, other


def _check_segmentation(segmentation: Segmentation | None, tokenizer: Trainable | AnyTokenizer) -> None:
    if isinstance(tokenizer, Trainable) and segmentation and segmentation.model_type != tokenizer.model_type:
        raise ValueError(
            f"segmentation: {type(segmentation).__name__} needs "
            f"tokenizer.model_type={segmentation.model_type}, and not {tokenizer.model_type}; give "
            "segmentation.kind=best, or the one that fits"
        )


def _check_both_directions(tokenizer: Trainable | AnyTokenizer, hide_source: bool) -> None:
    if isinstance(tokenizer, SentencePiecePair | TokenizerPair):
        raise ValueError(
            "data.both_directions=true: needs one vocabulary of both languages, but tokenizer.kind=separate has "
            "two; give tokenizer.kind=joint"
        )
    if hide_source:
        raise ValueError(
            "data.both_directions=true: the source says which language to write, but data.hide_source=true leaves it "
            "out; give one of the two"
        )


def _require(setting: str, value: int | None, least: int, example: str, most: float = math.inf) -> None:
    if value is not None and value < least:
        raise ValueError(f"{setting}={value} is too small; give {least} or more, such as {example}")
    if value is not None and value > most:
        raise ValueError(f"{setting}={value} is too large; give {most} or less, such as {example}")
