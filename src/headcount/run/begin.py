"""A run that is begun: its config, parts, data and model, checked and ready to fit.

The directory of a resumed run is as it was until training starts (`OpenDirectory`).
"""

import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from omegaconf import DictConfig
from pytorch_lightning import Callback, LightningModule, Trainer
from torch.distributed.rendezvous import rendezvous

from headcount.data.module import TranslationData
from headcount.data.tokenizer import AnyTokenizer, load_tokenizer, save_tokenizer
from headcount.decoding.search import SearchMethod
from headcount.decoding.translator import Translator
from headcount.errors import InputError
from headcount.files import naming, remove_parts, show
from headcount.machine import use_threads
from headcount.model.encoder_decoder import EncoderDecoder
from headcount.model.flops import operations_per_token
from headcount.run.build import Parts, build_parts, check_processes, names_given, without_effect
from headcount.run.curves import begin_curves
from headcount.run.directory import is_finished, link_latest, locked, mark_unfinished, read_config, write_config
from headcount.run.identity import with_text
from headcount.run.opened import build_model, make_translator, model_with
from headcount.run.resume import (
    AUTO,
    Resumed,
    Start,
    checkpoints,
    initial_config,
    keep_as_last,
    open_resumed,
    other_settings,
)
from headcount.run.scores import doubts
from headcount.training.loaded_state import check_optimizer_state
from headcount.training.module import TranslationTask, seed_everything_at

logger = logging.getLogger(__name__)


@dataclass
class TrainingRun:
    """A run to train.

    resumed: the run that is resumed, None for a new one. held: the open lock of the directory, and its log. notes:
    lines for the beginning of the log. description: see `describe`.
    """

    config: DictConfig
    directory: Path
    parts: Parts
    model: EncoderDecoder
    resumed: Resumed | None
    held: contextlib.ExitStack
    notes: list[str]
    description: str = field(init=False)

    def __post_init__(self) -> None:
        self.description = describe(self)

    @property
    def tokenizer(self) -> AnyTokenizer:
        return self.parts.data.tokenizer

    @property
    def is_first_process(self) -> bool:
        """Whether this process writes the files; of several, only the first does."""
        return bool(self.parts.trainer.is_global_zero)

    def translator(self, search: SearchMethod) -> Translator:
        return make_translator(self.model, self.tokenizer, search, self.config.data.hide_source, show(self.directory))


def open_training_run(config: DictConfig, start: Start, held: contextlib.ExitStack) -> TrainingRun:
    """Build and check all that `config` describes, prepare the data and make the model; see `train`.

    A new run's directory is locked in `held`, and is the newest. Raises InputError.
    """
    resumed = _resumed(config, start, held) if start.resume else None
    wrong: list[str] = []
    config = resumed.config if resumed else initial_config(config, wrong)
    directory = start.directory
    check_processes(config)
    use_threads(config.threads)
    directory = shared_directory(directory.resolve(), held)
    parts = build_parts(config, directory, wrong)
    if resumed:
        resumed.check_text(parts.data.corpus.fingerprint())
        parts.data.start_step = resumed.step
    else:
        config = with_text(config, parts.data.corpus.fingerprint())
    source = directory if resumed else Path(config.init_from) if config.init_from else None
    if source is not None:
        parts.data.use_tokenizer(load_tokenizer(source))
    parts.data.prepare_data()
    seed_everything_at(config.seed, 0)
    others: list[str] = []
    if source is None:
        model = build_model(config, parts.data.tokenizer)
    else:
        weights = resumed.checkpoint if resumed else source / "model.safetensors"
        others = [] if resumed else other_settings(config, source)
        try:
            model = model_with(weights, config, parts.data.tokenizer, source)
        except InputError as error:
            raise InputError("\n".join(f"{line}, and do not fit" for line in others) or str(error)) from error
    check_lengths(parts.data, model, parts.search)
    notes = [*(resumed.notes if resumed else others), *without_effect(config, names_given())]
    scored = {split: parts.data.data[split] for split in parts.data.held_out_splits}
    notes += doubts(scored, parts.data.tokenizer, parts.search, parts.task["bleu_tokenizer"])
    run = TrainingRun(config, directory, parts, model, resumed, held, notes)
    if not resumed and run.is_first_process:
        make_newest(directory)
        held.enter_context(locked(directory))
        if is_finished(directory) or checkpoints(directory):  # since `start` looked
            raise InputError(f"{show(directory)}: another process has trained into it; give another hydra.run.dir=")
    return run


def _resumed(config: DictConfig, start: Start, held: contextlib.ExitStack) -> Resumed:
    run = start.directory if config.resume in (None, AUTO) else Path(config.resume)
    read_config(run)  # raises InputError where it is not a run
    if start.directory.resolve() != run.resolve():
        raise InputError(
            f"hydra.run.dir={start.directory}: resume={run} continues in the directory of that run; leave it out"
        )
    if int(os.environ.get("RANK", 0)) == 0:
        held.enter_context(locked(run))
    return open_resumed(run, config)


def make_newest(directory: Path) -> None:
    """Link runs/latest to this run, unless it is the job of a sweep. Raises InputError where that is not a link."""
    if directory.parent == Path("runs").resolve():
        link_latest(directory)


def shared_directory(directory: Path, held: contextlib.ExitStack) -> Path:
    """The run directory of the first process, on all processes of a torchrun job. held: keeps the store that it is read
    from."""
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        return directory
    store, rank, _ = next(rendezvous("env://"))
    # Where torchrun has no store of its own, the first process serves the others; one that is late would find no
    # server. Lightning's processes meet at the same port, and share it.
    held.callback(lambda: store)
    if rank == 0:
        store.set("headcount/run_directory", str(directory))
    return Path(store.get("headcount/run_directory").decode())


class OpenDirectory(Callback):
    """Writes the first files of a run's directory when training starts: Lightning has loaded the checkpoint by then. A
    run that cannot be resumed is left as it was, to the last byte."""

    def __init__(self, run: TrainingRun) -> None:
        self.run = run
        self.is_open = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        task = cast("TranslationTask", pl_module)
        if self.run.resumed:
            for optimizer in trainer.optimizers:
                check_optimizer_state(task, optimizer)
        self.open()

    def open(self) -> None:
        """Do it, once."""
        if self.is_open:
            return
        self.is_open = True
        run, parts, resumed = self.run, self.run.parts, self.run.resumed
        parts.trainer.loggers = parts.loggers
        if not run.is_first_process:
            return
        remove_parts(run.directory)
        if resumed:
            make_newest(run.directory)
        begin_curves(parts.loggers, parts.data.start_step, parts.checkpoint.validation_due)
        write_config(run.directory, run.config)
        if resumed:
            mark_unfinished(run.directory)
            keep_as_last(resumed.checkpoint)
        else:
            save_tokenizer(run.tokenizer, run.directory)
        run.held.enter_context(log_to_file(run.directory / "train.log"))
        for note in run.notes:
            logger.info("%s", note)
        logger.info("run directory: %s\nprecision: %s\n%s", show(run.directory), parts.precision, run.description)


class _LogFile(logging.FileHandler):
    """A log file whose errors end the program, such as that of a full disk; Python would print them, line by line."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        with naming(self.baseFilename):
            raise


@contextlib.contextmanager
def log_to_file(path: Path) -> Iterator[None]:
    """Copy the log to a file as well."""
    handler = _LogFile(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    logger = logging.getLogger("headcount")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


def check_lengths(data: TranslationData, model: EncoderDecoder, search: SearchMethod) -> None:
    """Raises InputError, with a line for each, for splits with a sentence that the model has no positions for, or that
    is too long to be translated."""
    wrong = []
    for split in data.data:
        for side, longest in zip(("source", "target"), data.longest(split), strict=True):
            what = f"a {side} of {split} has up to {longest:,} tokens with its end"
            if model.max_length is not None and longest > model.max_length:
                fix = ", or lower data.max_length" if split == "train" else ""
                wrong.append(
                    f"{what}, more than model.max_positions={model.max_length}: raise that, or take "
                    f"model.positions=sinusoidal{fix}"
                )
            most = search.max_source if (side, split == "train") == ("source", False) else None
            if most is not None and longest - 1 > most:
                wrong.append(f"{what}, more than search.max_source={most}: cut it into sentences, or raise that")
    if wrong:
        raise InputError("\n".join(wrong))


def describe(run: TrainingRun) -> str:
    """The model, its cost and the batches, a line each. Plans an epoch, so it raises InputError for batches that
    cannot be made."""
    data, model = run.parts.data, run.model
    sizes = dict.fromkeys((data.tokenizer.source, data.tokenizer.target))
    subwords = " and ".join(f"{tokenizer.vocab_size:,}" for tokenizer in sizes)
    heads = ", ".join(f"{name.removesuffix('_heads')} {_short(each)}" for name, each in model.head_counts.items())
    operations, (source, target) = operations_per_token(model, *data.mean_lengths), data.mean_lengths
    return (
        f"model: {parameter_count(model):,} parameters, {subwords} subwords; heads: {heads or 'none'}\n"
        f"cost: {operations:,} multiply-adds a token forward, in pairs of {source} and {target} tokens\n"
        f"batches: {data.global_batch_tokens:,.0f} real tokens a step (source + target), {data.padding:.1%} "
        f"padding, {data.steps_per_epoch:,} steps an epoch; {run.config.steps:,} steps"
    )


def parameter_count(model: EncoderDecoder) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _short(counts: list[int]) -> str:
    return str(counts[0]) if len(set(counts)) == 1 else "/".join(map(str, counts))
