"""Train a translation model: from a config to a finished run directory; or only prepare its corpus."""

import contextlib
import logging
import os
import shlex
import signal
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch.distributed as dist
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from pytorch_lightning import Callback, LightningModule, Trainer
from torch.distributed.rendezvous import rendezvous

from headcount.command_lines import command, hydra_text
from headcount.data.module import TranslationData
from headcount.data.tokenizer import load_tokenizer, save_tokenizer
from headcount.decoding.beam import greedy
from headcount.decoding.search import NotFiniteError, SearchMethod
from headcount.devices import choose_device, hardware, no_memory, refused_memory, use_threads, versions
from headcount.errors import InputError, first_line
from headcount.files import first_error, remove_parts, show
from headcount.model.encoder_decoder import EncoderDecoder
from headcount.model.flops import operations_per_token
from headcount.model.transformer import Transformer
from headcount.run.build import Parts, build_data, build_model, build_parts, check_processes, initial_config, plain
from headcount.run.curves import begin_curves
from headcount.run.directory import begin_metrics, link_latest, locked, mark_unfinished, update_metrics, write_config
from headcount.run.identity import config_hash, with_text
from headcount.run.opened import Run, load_weights, make_translator
from headcount.run.resume import AUTO, Resumed, checkpoints, keep_as_last, open_resumed, start
from headcount.run.scores import Figures, contrastive_table, evaluate_split, record, score_table
from headcount.run.weights import scored_weights, verdict
from headcount.run.written import parameters
from headcount.settings import typed
from headcount.signals import signals_to
from headcount.training.averaging import save_weights
from headcount.training.module import TranslationTask, seed_everything_at

LOW = 10  # BLEU; each kept run of docs/results has more

logger = logging.getLogger(__name__)


def run(config: DictConfig) -> str:
    for name in ("resume", "init_from"):  # which are read before all others are checked
        if not isinstance(config[name], str | None):
            raise InputError(f"{name}={typed(plain(config)[name])}: must be the directory of a run, or null")
    if not isinstance(config.prepare, bool):
        raise InputError(f"prepare={typed(config.prepare)}: must be true or false")
    return prepare(config) if config.prepare else train(config, Path(HydraConfig.get().runtime.output_dir))


def prepare(config: DictConfig) -> str:
    """Prepare a corpus, as training with the same settings would; what was dropped, and the next command."""
    if config.resume not in (None, AUTO):
        raise InputError(f"resume={typed(config.resume)}: resuming that run prepares its corpus; leave it out")
    data = build_data(initial_config(config))
    if config.init_from:
        data.use_tokenizer(load_tokenizer(Path(config.init_from)))
    logged = not data.is_prepared and sys.stdout.isatty() and sys.stderr.isatty()
    data.prepare_data()
    words = [word for word in HydraConfig.get().overrides.task if not word.startswith("prepare=")]
    table = "" if logged else f"{data.report.table()}\n\n"
    return f"{table}prepared: {show(data.prepared.absolute())}\nnext:  {command('train', *words)}\n"


@dataclass
class TrainingRun:
    """A run to train.

    resumed: the run that is resumed, None for a new one. held: the open lock of the directory, and its log. notes:
    lines for the beginning of the log.
    """

    config: DictConfig
    directory: Path
    parts: Parts
    model: EncoderDecoder
    resumed: Resumed | None
    held: contextlib.ExitStack
    notes: list[str]

    @property
    def is_first_process(self) -> bool:
        """Whether this process writes the files; of several, only the first does."""
        return bool(self.parts.trainer.is_global_zero)

    def opened(self, search: SearchMethod) -> Run:
        """The run as other commands open it, with the model as it is now."""
        tokenizer = self.parts.data.tokenizer
        translator = make_translator(self.model, tokenizer, search, show(self.directory))
        return Run(self.directory, self.config, self.model, tokenizer, translator)


def train(config: DictConfig, directory: Path) -> str:
    """Train the run that `config` describes in `directory`, and score it; a summary with the commands to type next.

    Raises InputError for settings that cannot be used (all of them at once, before any data is read) or data that
    cannot be used; OSError for files that cannot be written; SystemExit where training was stopped: 130 for Ctrl-C,
    143 for SIGTERM.
    """
    begun = start(config, directory)
    if begun.done:
        return f"{show(begun.directory)} is finished: nothing is left to do\n"
    with contextlib.ExitStack() as held:
        run = open_training_run(config, begun.directory, begun.resume, held)
        try:
            task = fit(run)
            if not run.is_first_process:
                return ""
            with signals_to(partial(stop, run)):
                trained = save(run, task)
                scores = score_splits(run)
        except NotFiniteError as error:
            raise run.parts.task["skipped"].diverged(run.parts.trainer.global_step) from error
        except OSError as error:
            first = first_error(error)
            first.filename = first.filename or str(run.directory)  # a logger's error names no file
            if checkpoints(run.directory):
                first.add_note(f"go on from the last checkpoint: {again(run)}")
            raise first from None
        update_metrics(run.directory, {"config_hash": config_hash(run.config)})  # the mark of a finished run
        return summary(run, trained, scores)


def open_training_run(config: DictConfig, directory: Path, resume: bool, held: contextlib.ExitStack) -> TrainingRun:
    """Build and check all that `config` describes, prepare the data and make the model.

    A run's directory is locked in `held`, and is the newest. That of a resumed run is as it was until training starts
    (`OpenDirectory`). Raises InputError.
    """
    wrong: list[str] = []
    resumed = open_resumed(config, directory, held) if resume else None
    config = resumed.config if resumed else initial_config(config, wrong)
    check_processes(config)
    use_threads(config.threads)
    directory = shared_directory(directory.resolve(), held)
    parts = build_parts(config, directory, wrong)
    data = parts.data
    if resumed:
        resumed.check_text(data.corpus.fingerprint())
        data.start_step = resumed.step
    else:
        config = with_text(config, data.corpus.fingerprint())
    source = directory if resumed else Path(config.init_from) if config.init_from else None
    if source is not None:
        data.use_tokenizer(load_tokenizer(source))
    data.prepare_data()
    seed_everything_at(config.seed, 0, device=choose_device("cpu"))
    model = build_model(config, data.tokenizer)
    if source is not None:
        load_weights(model, resumed.checkpoint if resumed else source / "model.safetensors", source)
    check_lengths(data, model, parts.search)
    notes = resumed.notes if resumed else []
    notes.append(f"run directory: {show(directory)}\nprecision: {parts.precision}\n{describe(config, data, model)}")
    run = TrainingRun(config, directory, parts, model, resumed, held, notes)
    if not resumed and run.is_first_process:
        make_newest(directory)
        held.enter_context(locked(directory))
    return run


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
        begin_curves(parts.loggers, parts.data.start_step)
        write_config(run.directory, run.config)
        if resumed:
            mark_unfinished(run.directory)
            keep_as_last(resumed.checkpoint)
        else:
            save_tokenizer(parts.data.tokenizer, run.directory)
        log_to_file(run.directory / "train.log", run.held)
        for note in run.notes:
            logger.info("%s", note)


def log_to_file(path: Path, held: contextlib.ExitStack) -> None:
    """Copy the log to a file as well, until `held` is closed."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    package = logging.getLogger("headcount")
    package.addHandler(handler)
    held.callback(handler.close)
    held.callback(package.removeHandler, handler)


def check_lengths(data: TranslationData, model: EncoderDecoder, search: SearchMethod) -> None:
    """Raises InputError, with a line for each, for splits with a sentence that the model has no positions for, or that
    is too long to be translated."""
    wrong = []
    for split in data.data:
        for side, longest in zip(("source", "target"), data.longest(split), strict=True):
            what = f"a {side} of {split} has up to {longest:,} tokens with its end"
            if model.max_length is not None and longest > model.max_length:
                wrong.append(
                    f"{what}, more than model.max_positions={model.max_length}: raise that, lower data.max_length, or "
                    "take model.positions=sinusoidal"
                )
            most = search.max_source if side == "source" and split != "train" else None
            if most is not None and longest - 1 > most:
                wrong.append(f"{what}, more than search.max_source={most}: cut it, or raise that")
    if wrong:
        raise InputError("\n".join(wrong))


def describe(config: DictConfig, data: TranslationData, model: EncoderDecoder) -> str:
    """The model, its cost and the batches, a line each. Plans an epoch, so it raises InputError for batches that
    cannot be made."""
    sizes = dict.fromkeys((data.tokenizer.source, data.tokenizer.target))
    subwords = " and ".join(f"{tokenizer.vocab_size:,}" for tokenizer in sizes)
    counts = {name.removesuffix("_heads"): each for name, each in model.head_counts.items()}
    heads = ", ".join(f"{name} {'/'.join(map(str, each))}" for name, each in counts.items())
    operations, (source, target) = operations_per_token(model, *data.mean_lengths), data.mean_lengths
    first = data.epochs.plan(0)
    return (
        f"model: {parameters(model):,} parameters, {subwords} subwords; heads by layer: {heads or 'none'}\n"
        f"cost: {operations:,} multiply-adds per token forward, in pairs of {source} and {target} tokens\n"
        f"batches: {first.tokens / first.steps:,.0f} non-padding tokens per step (source + target), "
        f"{first.padding:.1%} padding, {first.steps:,} steps per epoch; {config.steps:,} steps"
    )


def fit(run: TrainingRun) -> TranslationTask:
    """Train the model of `run` to its last step, or until it is stopped.

    Raises InputError for a checkpoint that does not fit, or memory that does not suffice; SystemExit where Lightning
    is stopped before the first step.
    """
    valid = run.parts.data.data["valid"]
    if run.config.compile:
        cast("Transformer", run.model).compile_layers()
    task = TranslationTask(
        model=run.model,
        translator=run.opened(greedy(run.parts.search)).translator,
        sources=valid["source"],
        references=valid["target"],
        seed=run.config.seed,
        **run.parts.task,
    )
    opening = OpenDirectory(run)
    run.parts.trainer.callbacks.insert(0, opening)  # type: ignore[attr-defined]
    try:
        checkpoint = run.resumed.checkpoint if run.resumed else None
        run.parts.trainer.fit(task, datamodule=run.parts.data, ckpt_path=checkpoint)
    except SystemExit as error:  # with an exit code of Lightning's own
        raise SystemExit(exit_code(run) or 128 + signal.SIGINT) from error
    except Exception as error:  # of many classes, where a checkpoint is not what it claims to be
        if refused_memory(error):
            raise InputError(no_memory()) from error
        if run.config.compile and type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise InputError(f"compile=true: {first_line(error)}; leave it out") from error
        if opening.is_open or not run.resumed or isinstance(error, InputError | OSError):
            raise
        raise run.resumed.misfit(error) from error
    opening.open()  # where nothing was left to train
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    return task


def save(run: TrainingRun, task: TranslationTask) -> dict[str, Any]:
    """Save the weights to use and begin metrics.json with the figures of training, which are returned.

    Raises SystemExit where training was stopped; the saved model can be used.
    """
    figures = training_figures(run)
    weights, figures["weights"] = scored_weights(run.parts, task)
    save_weights(weights, run.directory / "model.safetensors")
    begin_metrics(run.directory, figures)
    if code := exit_code(run):
        step = run.parts.trainer.global_step
        logger.info("stopped at step %d; the model so far can be used. Resume with:\n  %s", step, again(run))
        raise SystemExit(code)
    return figures


def stop(run: TrainingRun, number: int) -> None:
    """End the process at once, for what has no state to save. Raises SystemExit."""
    logger.info("stopped before all splits were scored. Score them with:\n  %s", again(run))
    raise SystemExit(128 + number)


def again(run: TrainingRun) -> str:
    """The command that resumes a run; extensions are typed again, since no config brings code."""
    own = [f"extensions=[{','.join(run.config.extensions)}]"] if run.config.extensions else []
    return command("train", f"resume={hydra_text(show(run.directory))}", *own)


def exit_code(run: TrainingRun) -> int:
    """The exit code of a run that was asked to stop, else 0. Lightning takes a SIGTERM before the first step, and after
    the last one."""
    return run.parts.interrupt.exit_code or (128 + signal.SIGTERM if run.parts.trainer.received_sigterm else 0)


def training_figures(run: TrainingRun) -> dict[str, Any]:
    """The part of metrics.json about training itself."""
    parts, model = run.parts, run.model
    progress, step, skipped = parts.progress, parts.trainer.global_step, parts.task["skipped"].total
    return {
        "seed": run.config.seed,
        "parameters": parameters(model),
        "operations_per_token": operations_per_token(model, *parts.data.mean_lengths),
        "model": model.head_counts,
        "train": {
            "steps": step,
            **({"skipped_steps": skipped} if skipped else {}),
            "epochs": round(parts.data.epoch_of(step), 3),
            "seconds": round(progress.seconds, 1),
            "tokens": progress.tokens,
            "tokens_per_second": round(progress.tokens / max(progress.step_seconds, 1e-9), 1),
            "precision": parts.trainer.precision,
        },
        "versions": versions(),
        "hardware": hardware(parts.trainer.strategy.root_device),  # the model itself is back on the CPU
    }


def score_splits(run: TrainingRun) -> dict[str, Figures]:
    """Translate and score every held-out split with the saved weights; the figures by split."""
    parts, opened = run.parts, run.opened(run.parts.search)
    scores = {}
    for split in parts.data.held_out_splits:
        logger.info("translating the %s split with %s", split, parts.search)
        evaluation = evaluate_split(opened, parts.data.data[split], parts.task["bleu_tokenizer"])
        record(opened, split, evaluation)
        scores[split] = evaluation.figures
    return scores


def summary(run: TrainingRun, trained: dict[str, Any], scores: dict[str, Figures]) -> str:
    """The end of a run's output: its scores, its cost and the commands to type next.

    trained: the figures of training, see `save`.
    """
    place, training, weights = show(run.directory), trained["train"], trained["weights"]
    skipped = training.get("skipped_steps", 0)
    average_lost = weights["scored"] == "last" and weights["valid_loss"]["average"] is not None
    commands = [command("translate", run=place), command("evaluate", "lowercase=true", run=place)]
    if max(figures["bleu"] for figures in scores.values()) < LOW:
        commands.insert(0, f"{command('doctor', run=place)}   # looks for causes of the low scores")
    if run.config.logger == "default":
        commands.append(f"tensorboard --logdir {shlex.quote(f'{place}/logs')}")
    blocks = [score_table(scores)]
    if "contrastive" in scores["test"]:
        blocks.append(contrastive_table({"test": scores["test"]}))
    blocks.append(
        f"{training['steps']:,} steps, {training['epochs']:.1f} epochs, {training['seconds']:,.0f} s with validation, "
        f"{training['tokens_per_second']:,.0f} non-padding tokens/s without\n"
        + (f"steps skipped, since their gradients were not finite: {skipped:,}\n" if skipped else "")
        + (f"{verdict(weights)}\n" if average_lost else "")
        + f"run directory: {place}   (model.safetensors, metrics.json, test.hyp.{run.parts.data.target_language}, "
        "train.log)\n"
        "next:  " + "\n       ".join(commands)
    )
    return "\n\n".join(blocks) + "\n"
