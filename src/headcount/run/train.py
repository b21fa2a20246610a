"""From a config to a finished run directory."""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from filelock import FileLock, Timeout
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning import Callback, LightningModule, Trainer
from torch.distributed.rendezvous import rendezvous

from headcount.data.module import TranslationData
from headcount.data.tokenizer import AnyTokenizer, load_tokenizer, save_tokenizer
from headcount.decoding.beam import BeamSearch
from headcount.decoding.search import SearchMethod
from headcount.errors import InputError
from headcount.evaluation.likelihood import TargetScorer
from headcount.files import show, write_text
from headcount.machine import choose_device, processor, versions
from headcount.model.encoder_decoder import EncoderDecoder
from headcount.model.flops import operations_per_token
from headcount.run.console import log_to_file
from headcount.run.curves import begin_curves
from headcount.run.directory import (
    begin_metrics,
    check_links,
    link_latest,
    mark_unfinished,
    read_config,
    update_metrics,
)
from headcount.run.identity import config_hash, identified
from headcount.run.jobs import is_sweep
from headcount.run.opened import Run, build_model, load_weights, make_translator
from headcount.run.parts import Parts, build_parts, check_processes
from headcount.run.resume import Begun, command_line, initial_config, keep_as_last, open_begun
from headcount.run.split_scores import evaluate_split, record
from headcount.run.tables import contrastive_table, score_table
from headcount.run.weights import AT_A_STOP, choose_weights, verdict
from headcount.training.averaging import Weights, save_weights
from headcount.training.callbacks import ValidationStopped
from headcount.training.module import TranslationTask, seed_everything_at

logger = logging.getLogger(__name__)


def train(config: DictConfig, directory: Path, adapt: Callable[[Parts], None] | None = None) -> str:
    """Train as the config says, into `directory`, and evaluate; what was reached and what to type next, as text.

    adapt: called with the parts once they are built, to add callbacks or replace parts.
    Raises InputError for settings that cannot be honoured (all of them, before any data is read) or data that cannot be
    used; SystemExit when it was stopped, see `fit`.
    """
    with contextlib.ExitStack() as held:
        begun = None
        if config.resume:
            begun = _begun(config, directory, held)
            config = begun.config
        elif (directory / "config.yaml").exists():
            raise InputError(f"{show(directory)} holds a run already: go on with it by resume=, or move it away")
        elif config.init_from:
            config = initial_config(config, Path(config.init_from))
        check_processes(config)
        if config.get("threads"):
            torch.set_num_threads(config.threads)
        directory = shared_directory(directory.resolve())
        parts = build_parts(config, directory)
        if adapt is not None:
            adapt(parts)
        if begun:
            begun.check_text(parts.data.corpus.fingerprint())
            parts.data.start_step = begun.step
        else:
            config = identified(config, parts.data.corpus.fingerprint())
        if begun or config.init_from:
            parts.data.use_tokenizer(load_tokenizer(directory if begun else Path(config.init_from)))
        parts.data.prepare_data()
        seed_everything_at(config.seed, 0)
        model = build_model(config, parts.data.tokenizer)
        if begun:
            load_weights(model, begun.checkpoint, directory)
        elif config.init_from:
            load_weights(model, Path(config.init_from) / "model.safetensors", Path(config.init_from))
        check_lengths(parts.data, model, parts.search)
        opening = OpenDirectory(config, directory, parts, model, begun, held)
        if not begun and parts.trainer.is_global_zero:
            make_newest(directory)
            held.enter_context(locked(directory))
        return fit(config, directory, parts, model, begun, opening)


def _begun(config: DictConfig, directory: Path, held: contextlib.ExitStack) -> Begun:
    run = Path(config.resume)
    read_config(run)  # which says so where it is no run
    if directory.resolve() != run.resolve():
        raise InputError(f"hydra.run.dir={directory}: resume={run} goes on in the directory of that run; leave it out")
    check_links(run)
    if int(os.environ.get("RANK", 0)) == 0:
        held.enter_context(locked(run))
    return open_begun(run, config, command_line(), config.trust)


def make_newest(directory: Path) -> None:
    """Let runs/latest be this run, if it is a single one. Raises InputError where something else has that name."""
    if directory.parent == Path("runs").resolve() and not is_sweep(directory.parent):
        link_latest(directory)


def shared_directory(directory: Path) -> Path:
    """The first process's run directory, on all processes of a torchrun job."""
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        return directory
    store, rank, _ = next(rendezvous("env://"))
    if rank == 0:
        store.set("headcount/run_directory", str(directory))
    return Path(store.get("headcount/run_directory").decode())


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """The directory, for this training alone. Raises InputError if another process is training into it."""
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(directory / ".lock", blocking=False):
            yield
    except Timeout as error:
        raise InputError(f"{show(directory)}: another process is training into it; wait until it has ended") from error


class OpenDirectory(Callback):
    """Makes `directory` that of this training, and the newest, when the training starts: Lightning has loaded the
    checkpoint by then. A run that cannot be gone on with is left as it was, to the last byte.

    held: what stays open as long as the training, such as its log.
    """

    def __init__(
        self,
        config: DictConfig,
        directory: Path,
        parts: Parts,
        model: EncoderDecoder,
        begun: Begun | None,
        held: contextlib.ExitStack,
    ) -> None:
        self.config = config
        self.directory = directory
        self.parts = parts
        self.begun = begun
        self.held = held
        # Plans an epoch, so nothing can be wrong with the batches either.
        self.summary = describe(parts, model, config)
        self.is_open = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.open()

    def open(self) -> None:
        """Do it, once."""
        if self.is_open:
            return
        self.is_open = True
        self.parts.trainer.loggers = self.parts.loggers
        if not self.parts.trainer.is_global_zero:
            return
        if self.begun:
            make_newest(self.directory)
        begin_curves(self.parts.loggers, self.parts.data.start_step, self.parts.checkpoint.validation_due)
        write_text(self.directory / "config.yaml", OmegaConf.to_yaml(self.config, resolve=True))
        if self.begun:
            mark_unfinished(self.directory)
            keep_as_last(self.begun.checkpoint)
        else:
            save_tokenizer(self.parts.data.tokenizer, self.directory)
        self.held.enter_context(log_to_file(self.directory / "train.log"))
        for note in self.begun.notes if self.begun else []:
            logger.info("%s", note)
        logger.info("run directory: %s\nprecision: %s\n%s", show(self.directory), self.parts.precision, self.summary)


def fit(
    config: DictConfig,
    directory: Path,
    parts: Parts,
    model: EncoderDecoder,
    begun: Begun | None,
    opening: OpenDirectory,
) -> str:
    """Train `model`, save and score it; the summary.

    Raises SystemExit after Ctrl-C (code 130) or SIGTERM (143), when a usable model has been saved.
    """
    tokenizer = parts.data.tokenizer
    valid = parts.data.data["valid"]
    translator = make_translator(model, tokenizer, greedy(parts.search), config.data.hide_source, show(directory))
    task = TranslationTask(
        model=model,
        translator=translator,
        sources=valid["source"],
        references=valid["target"],
        seed=config.seed,
        **parts.task,
    )
    parts.trainer.callbacks.insert(0, opening)  # type: ignore[attr-defined]
    try:
        with contextlib.suppress(ValidationStopped):
            parts.trainer.fit(task, datamodule=parts.data, ckpt_path=begun.checkpoint if begun else None)
    except SystemExit as error:
        # So Lightning leaves when it is pressed, with the code of something else.
        raise SystemExit(parts.interrupt.exit_code or 130) from error
    except (RuntimeError, ValueError, KeyError) as error:
        if opening.is_open or not begun or isinstance(error, (InputError, torch.OutOfMemoryError)):
            raise
        raise begun.misfit(error) from error
    opening.open()  # where nothing was left to train
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    if not parts.trainer.is_global_zero:
        return ""
    step = parts.trainer.global_step
    figures = training_figures(config, parts, model)
    scorer = TargetScorer(model, translator.encode, tokenizer.target.encode)
    weights, figures["weights"] = scored_weights(parts, task, scorer)
    save_weights(weights, directory / "model.safetensors")
    begin_metrics(directory, figures)
    if parts.interrupt.exit_code:
        logger.info("stopped at step %d; the model so far can be used. Go on with:", step)
        logger.info("  python scripts/train.py resume=%s", show(directory))
        raise SystemExit(parts.interrupt.exit_code)
    return finish(config, directory, model, tokenizer, parts, figures)


def scored_weights(parts: Parts, task: TranslationTask, scorer: TargetScorer) -> tuple[Weights, dict[str, Any]]:
    """The weights to save and score, and what metrics.json says about them: see `choose_weights`. A run that was
    stopped takes some validation sentences and their loss alone, a run that ended takes all."""
    stopped, model, averaging = bool(parts.interrupt.exit_code), task.model, parts.averaging
    average = None if averaging is None else averaging.weights(model, parts.trainer.global_step)
    metric = "loss" if stopped or averaging is None else averaging.metric
    rows = slice(None, None, max(1, len(task.sources) // AT_A_STOP) if stopped else 1)

    def measure() -> dict[str, float]:
        log_probs, tokens = scorer.score(task.sources[rows], task.references[rows])
        figures = {"loss": -sum(log_probs) / sum(tokens)}
        if metric == "bleu":
            figures["bleu"] = task.bleu(task.translator.translate(task.sources))
        return figures

    # In float32, as whoever opens the run will have them; in trainer.precision=bf16-true they were not.
    model.float().to(choose_device("auto" if parts.trainer.accelerator.name() != "cpu" else "cpu")).eval()
    return choose_weights(model, average, measure)


def describe(parts: Parts, model: EncoderDecoder, config: DictConfig) -> str:
    """What is about to be trained, in a few lines."""
    data = parts.data
    parameters = sum(parameter.numel() for parameter in model.parameters())
    sizes = dict.fromkeys((data.tokenizer.source, data.tokenizer.target))
    pieces = " and ".join(f"{tokenizer.vocab_size:,}" for tokenizer in sizes)
    heads = ", ".join(f"{name.removesuffix('_heads')} {_short(counts)}" for name, counts in model.head_counts.items())
    operations, (source, target) = operations_per_token(model, *data.mean_lengths), data.mean_lengths
    return (
        f"model: {parameters:,} parameters, {pieces} pieces; heads: {heads or 'none'}\n"
        f"cost: {operations:,} multiply-adds a token forward, in pairs of {source} and {target} tokens\n"
        f"batches: {data.global_batch_tokens:,.0f} real tokens a step (source + target), {data.padding:.1%} padding, "
        f"{data.steps_per_epoch:,} steps an epoch; {config.trainer.max_steps:,} steps"
    )


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


def _short(counts: list[int]) -> str:
    return str(counts[0]) if len(set(counts)) == 1 else "/".join(map(str, counts))


def training_figures(config: DictConfig, parts: Parts, model: EncoderDecoder) -> dict[str, Any]:
    """What metrics.json says of the training itself."""
    progress, step = parts.progress, parts.trainer.global_step
    device = parts.trainer.strategy.root_device  # the model itself is back on the CPU
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "seed": config.seed,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "operations_per_token": operations_per_token(model, *parts.data.mean_lengths),
        "model": model.head_counts,
        "train": {
            "steps": step,
            "epochs": round(parts.data.epoch_of(step), 3),
            "seconds": round(progress.seconds, 1),
            "tokens": progress.tokens,
            "tokens_per_second": round(progress.tokens / max(progress.step_seconds, 1e-9), 1),
            "precision": parts.trainer.precision,
        },
        "versions": versions(),
        "hardware": {"processor": processor(), "threads": torch.get_num_threads(), "gpu": gpu},
    }


def finish(
    config: DictConfig,
    directory: Path,
    model: EncoderDecoder,
    tokenizer: AnyTokenizer,
    parts: Parts,
    trained: dict[str, Any],
) -> str:
    """Score the model on valid and every test set; the summary that a run ends with.

    trained: the figures of the training, see `training_figures` and `choose_weights`.
    """
    translator = make_translator(model, tokenizer, parts.search, config.data.hide_source, show(directory))
    own = [config.data.corpus["_target_"]]  # it has just been trained on, whoever wrote it
    run = Run(directory, read_config(directory), model, tokenizer, translator, own)
    figures = {}
    for split in parts.data.held_out_splits:
        logger.info("translating the %s split with %s", split, parts.search)
        rows = parts.data.data[split]
        found = evaluate_split(run, rows, parts.task["bleu_tokenizer"])
        record(run, split, found, rows["target"])
        figures[split] = found.figures
    update_metrics(directory, {"config_hash": config_hash(config)})  # now it is finished
    place, training = show(directory), trained["train"]
    average_lost = trained["weights"]["scored"] == "last" and trained["weights"]["valid_loss"]["average"] is not None
    summary = [score_table(figures)]
    if "contrastive" in figures["test"]:
        summary.append(contrastive_table({"test": figures["test"]}))
    summary.append(
        f"{training['steps']:,} steps, {training['epochs']:.1f} epochs, {training['seconds']:,.0f} s, "
        f"{training['tokens_per_second']:,.0f} real tokens/s\n"
        + (f"{verdict(trained['weights'])}\n" if average_lost else "")
        + f"run directory: {place}   (model.safetensors, metrics.json, test.hyp.{run.languages[1]}, train.log)\n"
        f"next:  make translate RUN={place}\n"
        f"       make evaluate RUN={place} ARGS='lowercase=true'"
        + (f"\n       tensorboard --logdir {place}/logs" if "tensorboard" in config.logger else "")
    )
    return "\n\n".join(summary)


def greedy(search: SearchMethod) -> SearchMethod:
    """Greedy search with the same cap on the length: good enough to see how training goes, and fast."""
    names = ("max_ratio", "max_extra", "batch_tokens", "max_source")
    return BeamSearch(beam=1, **{name: getattr(search, name) for name in names})
