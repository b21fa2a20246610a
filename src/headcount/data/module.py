"""From a corpus to batches, for Lightning: prepares it where that has not been done before, and serves it."""

import hashlib
import json
import logging
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytorch_lightning as pl
import torch
from datasets import Dataset, DatasetDict
from filelock import AcquireReturnProxy, FileLock, Timeout
from torch.utils.data import DataLoader

from headcount.data.batches import Batch, Redraw, Sentences, SplitBatches, TrainStream
from headcount.data.cleaning import Cleaning, CleaningReport
from headcount.data.corpora import Corpus, further_names, language_codes
from headcount.data.plan import Epochs, Lengthening, plan_split
from headcount.data.prepare import prepare, read_sentences
from headcount.data.subword_sampling import Segmentation, draw_pieces
from headcount.data.tokenizer import AnyTokenizer, Trainable, load_tokenizer
from headcount.errors import InputError

FORMAT = 3  # part of the key of prepared data: raise it when what is stored there changes

LENGTH_SAMPLE = 2000  # pairs by which the lengths of drawn sentences are known

log = logging.getLogger(__name__)


class TranslationData(pl.LightningDataModule):
    """Batches of a parallel corpus.

    `prepare_data` fills these:
        tokenizer: the one in use, or the pair.
        data: splits train, valid, test, and further test sets by name, with columns `source`, `target`, `source_ids`,
            `target_ids` (no BOS, no EOS) and whatever else the corpus has; memory-mapped. All but train hold every pair
            of the corpus, in order.
        report: what cleaning did.
        prepared: the folder it all lies in, `<directory>/prepared/<key>`, where the key is drawn from the corpus and
            all settings that matter.

    Training never ends by itself: `train_dataloader` walks through one epoch after the other, and everything counts in
    optimizer steps. Set `start_step` before asking for it to go on where a run left off.

    Args:
        corpus: where the text comes from.
        tokenizer: how to train one, or one that is trained.
        cleaning: what to drop from train.
        batch_tokens: padded tokens of either side in one micro-batch of one process, at most; with a segmentation, too.
        eval_batch_tokens: the same for valid and test; None for `batch_tokens`.
        directory: where prepared data lands.
        seed: of the order of batches.
        max_length: pieces a side may have in train, longer pairs are dropped; None for no limit but the budget.
        workers: processes that build batches beside the training process; 0 for none.
        accumulation: micro-batches in one optimizer step of one process.
        hide_source: every source is just the end of sentence, so that a model learns what the target alone tells.
        segmentation: how the text of train is cut into pieces anew at every epoch; None for always the best pieces. A
            sentence that would not fit into its batch, or into max_length, keeps its best pieces in that epoch.
    """

    tokenizer: AnyTokenizer
    data: DatasetDict
    report: CleaningReport
    prepared: Path

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: Trainable | AnyTokenizer,
        cleaning: Cleaning,
        batch_tokens: int = 4096,
        eval_batch_tokens: int | None = None,
        directory: str | Path = "data",
        seed: int = 1,
        max_length: int | None = None,
        workers: int = 0,
        accumulation: int = 1,
        hide_source: bool = False,
        segmentation: Segmentation | None = None,
    ) -> None:
        super().__init__()
        _require("data.batch_tokens", batch_tokens, least=1, example="4096")
        _require("data.eval_batch_tokens", eval_batch_tokens, least=1, example="4096, or null for data.batch_tokens")
        _require("data.max_length", max_length, least=1, example="128, or null for no limit")
        _require("data.workers", workers, least=0, example="2, or 0 for none")
        _require("trainer.accumulate_grad_batches", accumulation, least=1, example="1")
        _require("seed", seed, least=0, example="1")
        if max_length is not None and max_length >= batch_tokens:
            raise ValueError(
                f"data.max_length={max_length} does not fit into data.batch_tokens={batch_tokens}: a sentence "
                "takes its pieces and one token more; give a smaller data.max_length or more data.batch_tokens"
            )
        if isinstance(tokenizer, Trainable) and segmentation and segmentation.model_type != tokenizer.model_type:
            raise ValueError(
                f"segmentation: {type(segmentation).__name__} needs tokenizer={segmentation.model_type}, but the "
                f"tokenizer is {tokenizer.model_type}; give segmentation=best, or the one that fits"
            )
        self.corpus = corpus
        self.cleaning = cleaning
        self.batch_tokens = batch_tokens
        self.eval_batch_tokens = eval_batch_tokens or batch_tokens
        self.directory = Path(directory)
        self.seed = seed
        self.max_length = max_length
        self.workers = workers
        self.accumulation = accumulation
        self.hide_source = hide_source
        self.segmentation = segmentation
        self.start_step = 0
        self.source_language, self.target_language = language_codes(corpus.source_language, corpus.target_language)
        self._tokenizer = tokenizer
        self._sentences: dict[str, tuple[Sentences, Sentences]] = {}
        self._epochs: Epochs | None = None

    def use_tokenizer(self, tokenizer: AnyTokenizer) -> None:
        """Encode with this one, as that of a run, instead of training one; call before `prepare_data`.

        Where data has been prepared by training this very one, that data is used.
        """
        trained = self._folder()
        if not trained.is_dir() or load_tokenizer(trained).fingerprint() != tokenizer.fingerprint():
            self._tokenizer = tokenizer
        self._sentences = {}
        self._epochs = None

    def prepare_data(self) -> None:
        """Cleans, trains the tokenizer, encodes and stores, where that has not been done before; then opens the result.

        Any number of processes may call it at once: one builds, beside the final folder, and renames.

        Raises:
            InputError: something about the text; see the parts.
        """
        if self._sentences:
            return
        self.prepared = self._folder()
        if not self.prepared.is_dir():
            self._build()
        self._open()
        log.info("%s to %s, in %s\n%s", self.source_language, self.target_language, self.prepared, self.report.table())

    @property
    def is_prepared(self) -> bool:
        """Whether `prepare_data` finds all it needs in `directory`, and so only reads."""
        return self._folder().is_dir()

    def _build(self) -> None:
        self.prepared.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.prepared.with_suffix(".lock")):
            if self.prepared.is_dir():
                return
            part = self.prepared.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)  # of a process that was killed
            part.mkdir()
            try:
                prepare(self.corpus, self.cleaning, self._tokenizer, self.max_length, part)
                part.rename(self.prepared)
            finally:
                shutil.rmtree(part, ignore_errors=True)

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
        self.prepare_data()  # Lightning calls that on one process of a machine only

    def train_dataloader(self) -> DataLoader[Batch]:
        """Endless; the first batch is this process's first of optimizer step `start_step`."""
        rank, world_size = self._rank_and_world_size()
        draw = self._drawing(self.segmentation) if self.segmentation else None
        stream = TrainStream(*self._sentences["train"], self.epochs, rank, world_size, self.start_step, draw)
        return self._loader(stream)

    def _drawing(self, segmentation: Segmentation) -> Redraw:
        """What cuts the text of rows of train into pieces anew; a sentence that gets too long keeps its best pieces."""
        pairs = self.data["train"].select_columns(["source", "target"])
        most = self._most_drawn()

        def draw(rows: np.ndarray, seed: tuple[int, ...], longest: int) -> tuple[Sentences, Sentences]:
            texts, limit = pairs[rows], min(longest, most)
            sides = []
            for number, side in enumerate(("source", "target")):
                drawn = draw_pieces(getattr(self.tokenizer, side), texts[side], segmentation, (*seed, number))
                best = self._sentences["train"][number]
                ids = [new if len(new) < limit else best.row(row) for row, new in zip(rows, drawn, strict=True)]
                sides.append(Sentences.of(ids))
            return (self._hidden(sides[0]) if self.hide_source else sides[0]), sides[1]

        return draw

    def _lengthening(self) -> tuple[Lengthening, Lengthening] | None:
        """How much longer drawn sentences are, measured on a sample that is the same in every process."""
        if self.segmentation is None:
            return None
        best = self._sentences["train"]
        size = len(best[0].starts)
        rows = np.sort(np.random.default_rng(0).choice(size, min(size, LENGTH_SAMPLE), replace=False))
        drawn = self._drawing(self.segmentation)(rows, (0,), self.batch_tokens)
        source, target = (
            Lengthening.measured(each.lengths[rows], new.lengths) for each, new in zip(best, drawn, strict=True)
        )
        return source, target

    def val_dataloader(self) -> DataLoader[Batch]:
        return self.split_batches("valid")

    def split_batches(self, split: str, batch_tokens: int | None = None) -> DataLoader[Batch]:
        """This process's share of a split, each sentence once, in batches of like lengths; as many for every process.

        Args:
            split: train, valid, test, or the name of a further test set.
            batch_tokens: the budget; None for `eval_batch_tokens`.
        """
        source, target = self._sentences[split]
        rank, world_size = self._rank_and_world_size()
        budget = batch_tokens or self.eval_batch_tokens
        plan = plan_split(source.lengths, target.lengths, batch_tokens=budget, world_size=world_size)
        return self._loader(SplitBatches(source, target, plan, rank, world_size))

    @property
    def epochs(self) -> Epochs:
        """The plans of all training epochs."""
        multiple = self._rank_and_world_size()[1] * self.accumulation
        if self._epochs is None or self._epochs.multiple != multiple:
            source, target = (side.lengths for side in self._sentences["train"])
            self._epochs = Epochs(source, target, self.batch_tokens, self.seed, multiple, self._lengthening())
        return self._epochs

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint: the steps of all epochs so far, so that a resumed run need not plan them again."""
        self.epochs.locate(self.trainer.global_step if self.trainer else 0)
        return {"plan": self._plan_key(), "steps": self.epochs.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["plan"] == self._plan_key():
            self.epochs.steps = list(state["steps"])

    def _plan_key(self) -> str:
        """What the plans of all epochs follow from."""
        epochs = self.epochs
        said = [self.prepared.name, epochs.batch_tokens, epochs.seed, epochs.multiple, epochs.lengthening]
        return f"{said} {self.hide_source}"

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps of the first epoch; later ones differ by a few in a hundred."""
        return self.epochs.steps_of(0)

    @property
    def padding(self) -> float:
        """Share of padding among all tokens of the first epoch, both sides, 0 to 1."""
        return self.epochs.plan(0).padding

    @property
    def global_batch_tokens(self) -> float:
        """Real source and target tokens of an optimizer step over all processes; mean of the first epoch."""
        plan = self.epochs.plan(0)
        return plan.tokens / plan.steps

    @property
    def mean_lengths(self) -> tuple[int, int]:
        """Tokens of a source and of a target in train, rounded, EOS counted."""
        source, target = (round(float(side.lengths.mean())) for side in self._sentences["train"])
        return source, target

    def longest(self, split: str) -> tuple[int, int]:
        """Most tokens that a source and a target of a split have, or may have where pieces are drawn; EOS counted."""
        source, target = (int(side.lengths.max(initial=0)) for side in self._sentences[split])
        if split == "train" and self.segmentation is not None:
            drawn = self._most_drawn()
            return source if self.hide_source else max(source, drawn), max(target, drawn)
        return source, target

    def _most_drawn(self) -> int:
        """Most tokens of a sentence that is cut into pieces anew, EOS counted."""
        return min(self.batch_tokens, (self.max_length or self.batch_tokens) + 1)

    def epoch_of(self, step: int) -> float:
        """How many epochs have been seen after `step` optimizer steps, with the part of the one under way."""
        epoch, done = self.epochs.locate(step)
        return epoch + done / self.epochs.steps_of(epoch)

    @property
    def held_out_splits(self) -> list[str]:
        """The splits to score on: valid, test, and further test sets."""
        return [split for split in self.data if split != "train"]

    def _open(self) -> None:
        try:
            report = json.loads((self.prepared / "report.json").read_text(encoding="utf-8"))
            self.report = CleaningReport.from_dict(report)
            further_names(self.report.counts)  # they become names of files
            self.tokenizer = load_tokenizer(self.prepared)
            paths = {split: self.prepared / f"{split}.arrow" for split in self.report.counts}
            self.data = DatasetDict({split: Dataset.from_file(str(path)) for split, path in paths.items()})
            self._sentences = {
                split: (read_sentences(path, "source_ids"), read_sentences(path, "target_ids"))
                for split, path in paths.items()
            }
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            raise InputError(
                f"{self.prepared} is damaged ({error}); delete this folder, it will be built again"
            ) from error
        if self.hide_source:
            for split, (source, target) in self._sentences.items():
                self._sentences[split] = (self._hidden(source), target)

    @staticmethod
    def _hidden(source: Sentences) -> Sentences:
        return Sentences(source.pieces[:0], np.zeros_like(source.starts), np.zeros_like(source.ends))

    def _loader(self, batches: TrainStream | SplitBatches) -> DataLoader[Batch]:
        return DataLoader(
            batches, batch_size=None, num_workers=self.workers, pin_memory=torch.cuda.is_available(), shuffle=None
        )

    def _rank_and_world_size(self) -> tuple[int, int]:
        if self.trainer is not None:
            return self.trainer.global_rank, self.trainer.world_size
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def _locked(path: Path) -> AcquireReturnProxy:
    """A lock for a `with` block; where it has to wait, it says so."""
    lock = FileLock(path)
    try:
        return lock.acquire(blocking=False)
    except Timeout:
        log.info("another process prepares this corpus; waiting until it has ended (%s)", path)
        return lock.acquire()


def _require(setting: str, value: int | None, least: int, example: str) -> None:
    if value is not None and value < least:
        raise ValueError(f"{setting}={value} is too small; give {least} or more, such as {example}")
