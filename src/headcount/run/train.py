"""From a config to a finished run directory."""

import contextlib
import csv
import logging
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.callbacks import EarlyStopping
from pytorch_lightning.loggers import CSVLogger, Logger
from torch.distributed.rendezvous import rendezvous

from headcount.data.module import TranslationData
from headcount.data.tokenizer_pair import AnyTokenizer, load_tokenizer, save_tokenizer
from headcount.decoding.beam import BeamSearch
from headcount.decoding.search import SearchMethod
from headcount.errors import InputError
from headcount.model.transformer import Transformer
from headcount.run.config import TRUSTED, Problems, build, build_data, check_targets
from headcount.run.directory import (
    Run,
    build_model,
    choose_device,
    codec_for,
    fill,
    link_latest,
    load_weights,
    make_translator,
    processor,
    read_config,
    update_metrics,
    versions,
    write_text,
)
from headcount.run.figures import evaluate_split, record
from headcount.run.machine import multiplies_bf16
from headcount.run.script import log_to_file
from headcount.run.tables import contrastive_table, score_table
from headcount.run.types import fits
from headcount.training.averaging import METRICS, Averaging, save_weights
from headcount.training.callbacks import StopOnInterrupt, TrainingProgress
from headcount.training.module import OptimizerFactory, TranslationTask, seed_everything_at

logger = logging.getLogger(__name__)

PLACEHOLDER_VOCABULARY = 8  # pieces, for a model that is built only to see whether its settings fit


@dataclass
class Parts:
    """What a config describes, built before any data is read."""

    data: TranslationData
    trainer: pl.Trainer
    task: dict[str, Any]  # loss, optimizer, schedule
    averaging: Averaging
    interrupt: StopOnInterrupt
    progress: TrainingProgress
    search: SearchMethod
    precision: str  # what was chosen, and why


def train(config: DictConfig, directory: Path) -> str:
    """Train as the config says, into `directory`, and evaluate; what was reached and what to type next, as text.

    Raises InputError for settings that cannot be honoured (all of them, before any data is read) or data that cannot be
    used; SystemExit when it was stopped, see `fit`.
    """
    resume = bool(config.resume)
    if resume:
        config = resumed_config(Path(config.resume), TRUSTED | frozenset(config.trust))
    elif (directory / "config.yaml").exists():
        raise InputError(f"{show(directory)} holds a run already: go on with it by resume=, or move it away")
    elif config.init_from:
        config = initial_config(config, Path(config.init_from))
    check_processes(config)
    directory = shared_directory(directory.resolve())
    checkpoint = directory / "checkpoints" / "last.ckpt"
    parts = build_parts(config, directory)
    parts.data.start_step = _steps_done(checkpoint, config) if resume else 0
    if config.get("init_from"):
        parts.data.use_tokenizer(load_tokenizer(directory if resume else Path(config.init_from)))
    parts.data.prepare_data()
    seed_everything_at(config.seed, 0)
    model = build_model(config, parts.data.tokenizer)
    if config.get("init_from") and not resume:
        load_weights(model, Path(config.init_from) / "model.safetensors", Path(config.init_from))
    summary = describe(parts, model, config)  # plans an epoch, so nothing can be wrong with the batches either
    with open_directory(directory, config, parts) if parts.trainer.is_global_zero else contextlib.nullcontext():
        logger.info("run directory: %s\nprecision: %s\n%s", show(directory), parts.precision, summary)
        return fit(config, directory, parts, model, checkpoint if resume else None)


@contextlib.contextmanager
def open_directory(directory: Path, config: DictConfig, parts: Parts) -> Iterator[None]:
    """Make it a run directory, and the newest; while it is open, what is said is kept in its log."""
    if directory.parent == Path("runs").resolve():
        link_latest(directory)
    directory.mkdir(parents=True, exist_ok=True)
    write_text(directory / "config.yaml", OmegaConf.to_yaml(config, resolve=True))
    save_tokenizer(parts.data.tokenizer, directory)
    begin_curves(parts.trainer.loggers, parts.data.start_step)
    with log_to_file(directory / "train.log"):
        yield


def fit(config: DictConfig, directory: Path, parts: Parts, model: Transformer, checkpoint: Path | None) -> str:
    """Train `model`, from `checkpoint` on if there is one, save and score it; the summary.

    Raises SystemExit after Ctrl-C (code 130) or SIGTERM (143), when a usable model has been saved.
    """
    tokenizer = parts.data.tokenizer
    valid = parts.data.data["valid"]
    task = TranslationTask(
        model=model,
        translator=make_translator(model, codec_for(config, tokenizer), greedy(parts.search)),
        sources=valid["source"],
        references=valid["target"],
        seed=config.seed,
        **parts.task,
    )
    try:
        parts.trainer.fit(task, datamodule=parts.data, ckpt_path=checkpoint)
    except SystemExit as error:
        # So Lightning leaves when it is pressed, with the code of something else.
        raise SystemExit(parts.interrupt.exit_code or 130) from error
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    if not parts.trainer.is_global_zero:
        return ""
    step = parts.trainer.global_step
    weights = parts.averaging.weights(model, step)
    save_weights(weights, directory / "model.safetensors")
    figures = training_figures(config, parts, model)
    update_metrics(directory, figures)
    if parts.interrupt.exit_code:
        logger.info("stopped at step %d; the model so far can be used. Go on with:", step)
        logger.info("  python scripts/train.py resume=%s", show(directory))
        raise SystemExit(parts.interrupt.exit_code)
    fill(model, weights)
    return finish(config, directory, model, tokenizer, parts, figures["train"])


def begin_curves(loggers: list[Logger], start_step: int) -> None:
    """Open every logger, and give Lightning's CSV loggers, which begin their file anew, the rows of the steps before
    `start_step` back. Raises InputError for a logger that cannot begin, such as one whose server is not there."""
    for curves in loggers:
        try:
            _ = getattr(curves, "experiment", None)
        except Exception as error:  # of whichever service it writes to
            what = (str(error).strip() or type(error).__name__).splitlines()[0]
            name = type(curves).__name__
            raise InputError(f"logger: {name} cannot begin ({what}); choose another, or logger=csv") from error
        if isinstance(curves, CSVLogger):
            path = Path(curves.log_dir) / "metrics.csv"
            rows = list(csv.DictReader(path.open(encoding="utf-8"))) if path.exists() else []
            written = [row for row in rows if int(row["step"]) < start_step]
            curves.experiment.metrics = [{name: cell for name, cell in row.items() if cell} for row in written]
            curves.save()


def build_parts(config: DictConfig, directory: Path) -> Parts:
    """Everything that a config describes, the model too (without memory, to see that its settings fit).

    Raises InputError with a line for each setting that is wrong.
    """
    problems = Problems()
    attempt = problems.attempt
    with torch.device("meta"):
        attempt(build, config.model, "model", vocab_size=PLACEHOLDER_VOCABULARY)
    task = {name: attempt(build, config[name], name) for name in ("loss", "optimizer", "schedule")}
    if task["optimizer"] is not None:
        attempt(build_optimizer, task["optimizer"])
    search = attempt(build, config.search, "search")
    averaging = attempt(build, config.averaging, "averaging")
    checkpoint = attempt(build, config.checkpoint, "checkpoint")
    data = attempt(build_data, config)
    attempt(check_numbers, config)
    attempt(check_scaling, config)
    attempt(check_layer_dropout, config)
    interrupt, progress = StopOnInterrupt(), TrainingProgress()
    callbacks = [progress, averaging, checkpoint, interrupt]
    if config.validation.patience is not None:
        monitor, sign = METRICS.get(config.validation.metric, METRICS["loss"])
        mode = "max" if sign > 0 else "min"
        callbacks.append(EarlyStopping(monitor, patience=config.validation.patience, mode=mode))
    precision, why = choose_precision(config.trainer.precision, config.trainer.accelerator)
    loggers = [attempt(build_logger, node, f"logger.{name}", directory) for name, node in config.logger.items()]
    trainer = attempt(
        build_trainer,
        config,
        directory,
        precision,
        [callback for callback in callbacks if callback is not None],
        [logger for logger in loggers if logger is not None],
    )
    problems.say()
    task["samples"] = config.validation.samples
    return Parts(data, trainer, task, averaging, interrupt, progress, search, f"{precision}, {why}")


def build_trainer(
    config: DictConfig, directory: Path, precision: str, callbacks: list[pl.Callback], loggers: list[Logger]
) -> pl.Trainer:
    """Lightning's trainer, quiet, without an idea of epochs. Raises InputError, also for a GPU that isn't there."""
    accelerator = config.trainer.accelerator
    if accelerator in ("gpu", "cuda") and not torch.cuda.is_available():
        raise InputError(f"trainer.accelerator={accelerator}: no GPU found; use trainer=cpu")
    if accelerator == "mps" and not torch.backends.mps.is_available():
        raise InputError("trainer.accelerator=mps: no Apple GPU found; use trainer=cpu")
    every = config.validation.every, config.trainer.accumulate_grad_batches
    trainer: pl.Trainer = build(
        config.trainer,
        "trainer",
        precision=precision,
        default_root_dir=directory,
        logger=loggers,
        callbacks=callbacks,
        # Everything counts in optimizer steps: there is one endless epoch, and validation every so many batches of it.
        max_epochs=-1,
        check_val_every_n_epoch=None,
        # Where one is no number, `check_numbers` and `build_data` say so.
        val_check_interval=math.prod(every) if all(fits(number, int) for number in every) else 1,
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    return trainer


def build_logger(node: DictConfig, setting: str, directory: Path) -> Logger:
    """A logger that writes into `directory`. Raises InputError, also where it needs a package that is not there."""
    make_logger = build(node, setting)
    try:
        logger: Logger = make_logger(save_dir=directory)
    except ImportError as error:
        raise InputError(f"{setting}: {str(error).splitlines()[0]}; install it, or choose another logger") from error
    return logger


def build_optimizer(optimizer: OptimizerFactory) -> None:
    """Let the optimizer say what it makes of its settings. Raises InputError."""
    try:
        optimizer([{"params": [torch.nn.Parameter(torch.zeros(1))]}])
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"optimizer: {error}") from error


def check_scaling(config: DictConfig) -> None:
    """Raises InputError for float16: its gradients are scaled, and clipping knows nothing of that."""
    if config.trainer.precision in (16, "16", "16-mixed"):
        raise InputError(
            f"trainer.precision={config.trainer.precision}: float16 would need scaled gradients; give bf16-mixed, "
            "32-true or auto"
        )


def check_layer_dropout(config: DictConfig) -> None:
    """Raises InputError where several processes would wait for the gradients of layers that one of them left out."""
    strategy = config.trainer.strategy
    finds = OmegaConf.is_dict(strategy) and strategy.get("find_unused_parameters", False)
    if config.trainer.devices != 1 and config.model.get("layer_dropout") and not finds:
        raise InputError(
            f"model.layer_dropout={config.model.layer_dropout}: with several processes, add "
            "+trainer.strategy.find_unused_parameters=true, or leave it at 0"
        )


def check_numbers(config: DictConfig) -> None:
    """Raises InputError, with a line for each, for numbers that no constructor of ours looks at."""
    at_least = {
        "validation.every": 1,
        "validation.samples": 0,
        "validation.patience": 1,
        "trainer.max_steps": 1,
        "trainer.log_every_n_steps": 1,
        "trainer.gradient_clip_val": 0,
    }
    wrong = []
    for setting, least in at_least.items():
        value = OmegaConf.select(config, setting)
        if setting.startswith("validation") and not fits(value, int | None if setting.endswith("patience") else int):
            wrong.append(f"{setting}={value}: must be a whole number")
        elif isinstance(value, int | float) and value < least:
            wrong.append(f"{setting}={value}: must be {least} or more")
    if config.validation.metric not in METRICS:
        wrong.append(f"validation.metric={config.validation.metric}: must be one of {', '.join(METRICS)}")
    if wrong:
        raise InputError("\n".join(wrong))


def choose_precision(precision: str, accelerator: str) -> tuple[str, str]:
    """Lightning's name of the precision to use, and why. `auto` takes bf16 where it pays."""
    if precision != "auto":
        return precision, "as asked for"
    on_gpu = accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()
    on_cpu = accelerator == "cpu" or (accelerator == "auto" and not on_gpu and not torch.backends.mps.is_available())
    if (on_gpu and torch.cuda.is_bf16_supported()) or (on_cpu and multiplies_bf16()):
        return "bf16-mixed", f"since this {'GPU' if on_gpu else 'processor'} multiplies bf16 natively"
    return "32-true", "since bf16 gains nothing here"


def check_processes(config: DictConfig) -> None:
    """Raises InputError where the processes that torchrun started are not those that the trainer expects."""
    world, local = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    devices = config.trainer.devices
    if devices != local:
        raise InputError(
            f"trainer.devices={devices}, but one process was started: start one a device with "
            f"torchrun --nproc-per-node {devices} scripts/train.py trainer=ddp"
            if world == 1
            else f"trainer.devices={devices}, but torchrun started {local} processes a machine: add trainer=ddp"
        )


def shared_directory(directory: Path) -> Path:
    """The first process's run directory, on all processes of a torchrun job."""
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        return directory
    store, rank, _ = next(rendezvous("env://"))
    if rank == 0:
        store.set("headcount/run_directory", str(directory))
    return Path(store.get("headcount/run_directory").decode())


def resumed_config(directory: Path, trusted: frozenset[str]) -> DictConfig:
    """The config of the run to go on with, and on top of it the single settings given on the command line.

    Raises InputError for a directory that is not a run, a config that would build what is not trusted, or an override
    that exchanges a whole part.
    """
    resumed = read_config(directory)
    check_targets(OmegaConf.to_container(resumed), str(directory), trusted)
    for override in OverridesParser.create().parse_overrides(list(HydraConfig.get().overrides.task)):
        key = override.key_or_group
        if key in ("resume", "debug", "trust"):
            continue
        parent, _, name = key.rpartition(".")
        group = OmegaConf.select(resumed, parent) if parent else resumed
        if not isinstance(group, DictConfig) or name not in group or OmegaConf.is_config(group[name]):
            raise InputError(
                f"{override.input_line or key}: resume goes by {directory}/config.yaml, where single settings can "
                f"be changed, such as trainer.max_steps=N"
            )
        group[name] = override.value()
    return resumed


def initial_config(config: DictConfig, directory: Path) -> DictConfig:
    """The config of a training that begins with the weights of the run in `directory`: that run's model and tokenizer,
    and on top of them the single settings of the model given on the command line.

    Raises InputError for a directory that is not a run, a config that would build what is not trusted, or an override
    that another model or tokenizer would need.
    """
    run = read_config(directory)
    check_targets(OmegaConf.to_container(run), str(directory), TRUSTED | frozenset(config.trust))
    initial = config.copy()
    initial.model, initial.tokenizer = run.model, run.tokenizer
    for override in OverridesParser.create().parse_overrides(list(HydraConfig.get().overrides.task)):
        part, _, setting = override.key_or_group.partition(".")
        if part == "tokenizer" or override.key_or_group in ("model", "data.vocab_size"):
            raise InputError(
                f"{override.input_line}: init_from={directory} brings its own model and tokenizer; leave it out"
            )
        if part == "model":
            OmegaConf.update(initial.model, setting, override.value(), force_add=True)
    return initial


def _steps_done(checkpoint: Path, config: DictConfig) -> int:
    if not checkpoint.is_file():
        raise InputError(f"{show(checkpoint)}: no such file, so there is nothing to resume; start anew without resume=")
    steps: int = torch.load(checkpoint, map_location="cpu", weights_only=True, mmap=True)["global_step"]
    if steps >= config.trainer.max_steps:
        raise InputError(
            f"{show(checkpoint)} is at step {steps} of {config.trainer.max_steps}: to go on, raise trainer.max_steps; "
            "to score it, use scripts/evaluate.py"
        )
    return steps


def describe(parts: Parts, model: Transformer, config: DictConfig) -> str:
    """What is about to be trained, in a few lines."""
    data = parts.data
    parameters = sum(parameter.numel() for parameter in model.parameters())
    sizes = dict.fromkeys((data.tokenizer.source, data.tokenizer.target))
    pieces = " and ".join(f"{tokenizer.vocab_size:,}" for tokenizer in sizes)
    heads = ", ".join(f"{name.removesuffix('_heads')} {_short(counts)}" for name, counts in model.head_counts.items())
    return (
        f"model: {parameters:,} parameters, {pieces} pieces; heads: {heads}\n"
        f"batches: {data.global_batch_tokens:,.0f} real tokens a step (source + target), {data.padding:.1%} padding, "
        f"{data.steps_per_epoch:,} steps an epoch; {config.trainer.max_steps:,} steps"
    )


def _short(counts: list[int]) -> str:
    return str(counts[0]) if len(set(counts)) == 1 else "/".join(map(str, counts))


def training_figures(config: DictConfig, parts: Parts, model: Transformer) -> dict[str, Any]:
    """What metrics.json says of the training itself."""
    progress, step = parts.progress, parts.trainer.global_step
    gpu = torch.cuda.get_device_name() if next(model.parameters()).is_cuda else None
    return {
        "seed": config.seed,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
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
    model: Transformer,
    tokenizer: AnyTokenizer,
    parts: Parts,
    train_figures: dict[str, Any],
) -> str:
    """Score the model, its weights averaged, on valid and every test set; the summary that a run ends with."""
    model.to(choose_device("auto" if parts.trainer.accelerator.name() != "cpu" else "cpu")).eval()
    translator = make_translator(model, codec_for(config, tokenizer), parts.search)
    own = frozenset({config.data.corpus["_target_"]})  # it has just been trained on, whoever wrote it
    run = Run(directory, read_config(directory), model, tokenizer, translator, TRUSTED | own)
    figures = {}
    for split in parts.data.held_out_splits:
        logger.info("translating the %s split with %s", split, parts.search)
        rows = parts.data.data[split]
        hypotheses, figures[split] = evaluate_split(run, rows)
        record(run, split, hypotheses, rows["target"], figures[split])
    place = show(directory)
    summary = [score_table(figures)]
    if "contrastive" in figures["test"]:
        summary.append(contrastive_table({"test": figures["test"]}))
    summary.append(
        f"{train_figures['steps']:,} steps, {train_figures['epochs']:.1f} epochs, {train_figures['seconds']:,.0f} s, "
        f"{train_figures['tokens_per_second']:,.0f} real tokens/s\n"
        f"run directory: {place}   (model.safetensors, metrics.json, test.hyp.{run.languages[1]}, train.log)\n"
        f"next:  make translate RUN={place}\n"
        f"       make evaluate RUN={place} ARGS='lowercase=true'"
        + (f"\n       tensorboard --logdir {place}/logs" if "tensorboard" in config.logger else "")
    )
    return "\n\n".join(summary)


def show(directory: Path) -> str:
    """A path as one would type it."""
    return str(directory.relative_to(Path.cwd())) if directory.is_relative_to(Path.cwd()) else str(directory)


def greedy(search: SearchMethod) -> SearchMethod:
    """Greedy search with the same cap on the length: good enough to see how training goes, and fast."""
    return BeamSearch(beam=1, max_ratio=search.max_ratio, max_extra=search.max_extra, batch_tokens=search.batch_tokens)
