"""Lightning data module: prepares a corpus once, and serves its batches."""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pytorch_lightning as pl
from annotated_types import Ge, Le
from datasets import Dataset, DatasetDict, concatenate_datasets
from filelock import FileLock
from torch.utils.data import DataLoader

from headcount.data.batches import Batch, Resample, Sentences, TrainStream, collate_planned
from headcount.data.batching import Epochs, Lengthening, plan_split
from headcount.data.cleaning import Cleaning, CleaningReport
from headcount.data.corpora.corpus import SIDES, Corpus, language_codes
from headcount.data.prepare import prepare
from headcount.data.subword_regularization import Segmentation, sample_pieces
from headcount.data.tokenizer import AnyTokenizer, SentencePiece, SentencePiecePair, TokenizerPair, load_tokenizer
from headcount.errors import InputError
from headcount.files import naming, waiting
from headcount.settings import Positive

FORMAT = 5  # part of the key of prepared data: raise it when the stored format changes
BOTH_WAYS = ("train", "valid")  # splits that data.both_directions doubles; scores of test stay comparable
LENGTH_SAMPLE = 2000  # pairs on which lengths with subword sampling are measured

logger = logging.getLogger(__name__)


class TranslationData(pl.LightningDataModule):
    """Batches of a parallel corpus.

    `prepare_data` sets these attributes:
    tokenizer: the trained tokenizer, or the pair. data: the splits train, valid, test and further test sets,
    memory-mapped, with the columns `source`, `target` and any others of the corpus; all splits but train have every
    pair of the corpus, in order. report: the cleaning report. prepared: the folder of all this,
    `<directory>/prepared/<key>`; the key is a hash of the corpus and of all settings that change the prepared data.

    Training batches are endless, epoch after epoch, and are counted in optimizer steps. To resume a run, set
    `start_step` before `train_dataloader` is called.

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
        tokenizer: SentencePiece | AnyTokenizer,
        cleaning: Cleaning,
        segmentation: Segmentation | None,
        batch_tokens: Positive,
        max_length: Positive | None,
        both_directions: bool,
        directory: str | Path,
        workers: Annotated[int, Ge(0), Le(256)],
        seed: int,
        accumulation: int,
    ) -> None:
        super().__init__()
        if isinstance(tokenizer, SentencePiece) and segmentation and segmentation.model_type != tokenizer.model_type:
            raise ValueError(
                f"segmentation: {type(segmentation).__name__} needs tokenizer.model_type={segmentation.model_type}, "
                f"and not {tokenizer.model_type}; give segmentation.kind=best, or the one that fits"
            )
        if both_directions and isinstance(tokenizer, SentencePiecePair | TokenizerPair):
            raise ValueError(
                "data.both_directions=true: needs one vocabulary of both languages; give tokenizer.kind=joint"
            )
        self.corpus = corpus
        self.cleaning = cleaning
        self.segmentation = segmentation
        self.batch_tokens = batch_tokens
        self.max_length = max_length
        self.both_directions = both_directions
        self.directory = Path(directory)
        self.workers = workers
        self.seed = seed
        self.accumulation = accumulation
        self.start_step = 0
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

    def prepare_data(self) -> None:
        """Clean, train the tokenizer, encode and store, unless that has been done; then open the prepared data.

        Of several processes that call it at once, one builds, and the others wait.
        Raises InputError for errors in the text; see the parts.
        """
        if self._sentences:
            return
        self.prepared = self._folder()
        if not self.prepared.is_dir():
            self.prepared.parent.mkdir(parents=True, exist_ok=True)
            lock = waiting(FileLock(self.prepared.with_suffix(".lock")), "another process prepares this corpus")
            with lock, naming(self.prepared):
                if not self.prepared.is_dir():
                    for left in self.prepared.parent.glob(f".{self.prepared.name}.*.part"):  # of one that was killed
                        shutil.rmtree(left)
                    prepare(self.corpus, self.cleaning, self._tokenizer, self.max_length, self.prepared)
        self._open()
        logger.info("%s to %s, in %s", self.source_language, self.target_language, self.prepared)

    @property
    def is_prepared(self) -> bool:
        """Whether the prepared data is in `directory`, so that `prepare_data` only reads."""
        return self._folder().is_dir()

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

    def _open(self) -> None:
        try:
            report = json.loads((self.prepared / "report.json").read_bytes())
            self.report = CleaningReport(report["counts"], report["enabled"])
            self.tokenizer = load_tokenizer(self.prepared)
            paths = {split: self.prepared / f"{split}.arrow" for split in self.report.counts}
            self.data = DatasetDict({split: Dataset.from_file(str(path)) for split, path in paths.items()})
            self.one_way = DatasetDict(self.data)  # without the reversed pairs that `both_directions` adds
            for split in paths:
                offsets = np.load(self.prepared / f"{split}.offsets.npy", mmap_mode="r")
                starts, ends = [offsets[:-1:2], offsets[1::2]], [offsets[1::2], offsets[2::2]]
                if self.both_directions and split in BOTH_WAYS:
                    self.data[split] = _with_reversed(self.data[split])
                    starts, ends = ([np.concatenate(side[::way]) for way in (1, -1)] for side in (starts, ends))
                pieces = np.memmap(self.prepared / f"{split}.pieces", np.int32, "r").view(np.ndarray)
                source, target = (Sentences(pieces, *side) for side in zip(starts, ends, strict=True))
                self._sentences[split] = source, target
        except (OSError, ValueError, TypeError, KeyError, pa.ArrowException) as error:
            raise InputError(
                f"{self.prepared} is damaged ({error}); delete this folder, it will be built again"
            ) from error

    def setup(self, stage: str | None = None) -> None:
        self.prepare_data()  # Lightning calls prepare_data in only one process of a machine

    def train_dataloader(self) -> DataLoader[Batch]:
        """Endless batches of this process, from optimizer step `start_step`."""
        rank, world_size = self._rank_and_world_size()
        resample = self._resampling if self.segmentation else None
        stream = TrainStream(*self._sentences["train"], self.epochs, rank, world_size, self.start_step, resample)
        return self._loader(stream)

    def val_dataloader(self) -> DataLoader[Batch]:
        """This process's share of validation, each sentence once, in batches of similar lengths, as in `plan_split`."""
        source, target = self._sentences["valid"]
        rank, world_size = self._rank_and_world_size()
        plan = plan_split(source.lengths, target.lengths, batch_tokens=self.batch_tokens, world_size=world_size)
        return self._loader(list(plan.share(rank, world_size)), partial(collate_planned, source, target))

    @property
    def epochs(self) -> Epochs:
        """The plans of all training epochs."""
        batches_per_step = self._rank_and_world_size()[1] * self.accumulation
        if self._epochs is None or self._epochs.batches_per_step != batches_per_step:
            start = self.segmentation.start_epoch if self.segmentation else 0
            source, target = self._lengths
            own = self.batch_tokens, self.seed, batches_per_step
            self._epochs = Epochs(source, target, *own, self._lengthening(), start)
        return self._epochs

    @property
    def _resampling(self) -> Resample:
        assert self.segmentation is not None
        pairs, best = self.data["train"].select_columns(list(SIDES)), self._sentences["train"]
        return Resampling(pairs, best, self.tokenizer, self.segmentation, self._most_sampled)

    def _lengthening(self) -> tuple[Lengthening, Lengthening] | None:
        """The lengthening by subword sampling, measured on a sample that is the same in every process."""
        if self.segmentation is None:
            return None
        best = self._lengths
        size = len(best[0])
        rows = np.sort(np.random.default_rng(0).choice(size, min(size, LENGTH_SAMPLE), replace=False))
        sampled = self._resampling(rows, (0,), self.batch_tokens)
        source, target = (
            Lengthening.measured(each[rows], new.lengths) for each, new in zip(best, sampled, strict=True)
        )
        return source, target

    @cached_property
    def _lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens of every source and target of train, with EOS: int32, half the size of the sentences' own."""
        source, target = (side.lengths.astype(np.int32) for side in self._sentences["train"])
        return source, target

    @property
    def mean_lengths(self) -> tuple[int, int]:
        """Mean tokens of a source and of a target in train, rounded, with EOS."""
        source, target = (round(float(lengths.mean())) for lengths in self._lengths)
        return source, target

    def longest(self, split: str) -> tuple[int, int]:
        """Most tokens of a source and of a target of a split, with EOS; with subword sampling, the most possible."""
        source, target = (int(side.lengths.max(initial=0)) for side in self._sentences[split])
        if split == "train" and self.segmentation is not None:
            return max(source, self._most_sampled), max(target, self._most_sampled)
        return source, target

    @property
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

    def _loader(self, batches: Any, collate: Callable[[Any], Batch] | None = None) -> DataLoader[Batch]:
        # Memory that is pinned opens the GPU, so not where a run on the CPU has no use for it.
        pins = self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"
        return DataLoader(batches, None, num_workers=self.workers, pin_memory=pins, shuffle=None, collate_fn=collate)

    def _rank_and_world_size(self) -> tuple[int, int]:
        if self.trainer is not None:
            return self.trainer.global_rank, self.trainer.world_size
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

    def __call__(self, rows: np.ndarray, seed: tuple[int, ...], longest: int) -> tuple[Sentences, Sentences]:
        texts, limit = self.pairs[rows], min(longest, self.most)
        sides = []
        for number, (side, best) in enumerate(zip(SIDES, self.best, strict=True)):
            sampled = sample_pieces(getattr(self.tokenizer, side), texts[side], self.segmentation, (*seed, number))
            ids = [new if len(new) < limit else best.row(row) for row, new in zip(rows, sampled, strict=True)]
            sides.append(Sentences.of(ids))
        return sides[0], sides[1]


def _with_reversed(pairs: Dataset) -> Dataset:
    """The pairs, then each with its sides exchanged."""
    pairs = pairs.select_columns(list(SIDES))
    return concatenate_datasets([pairs, pairs.rename_columns({"source": "target", "target": "source"})])
