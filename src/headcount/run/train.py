"""Train: from a config to a finished run directory."""

import contextlib
import logging
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch.distributed as dist
from omegaconf import DictConfig

from headcount.command_lines import command, hydra_text, word
from headcount.decoding.beam import greedy
from headcount.decoding.search import NotFiniteError
from headcount.errors import InputError, first_line
from headcount.files import first_error, show
from headcount.machine import hardware, no_memory, refused_memory, versions
from headcount.model.flops import operations_per_token
from headcount.model.transformer import Transformer
from headcount.openmp import sleeping_when_crowded
from headcount.run.begin import OpenDirectory, TrainingRun, open_training_run, parameter_count
from headcount.run.directory import begin_metrics, update_metrics
from headcount.run.identity import config_hash
from headcount.run.opened import Run
from headcount.run.resume import newest_checkpoint, start
from headcount.run.scores import Figures, contrastive_table, evaluate_split, record, score_table
from headcount.run.weights import scored_weights, verdict
from headcount.signals import STOP, signals_to
from headcount.training.averaging import save_weights
from headcount.training.callbacks import StopOnInterrupt
from headcount.training.module import TranslationTask

# In the messages of gloo and NCCL where another process has ended, or does not begin.
LOST = ("by peer", "Broken pipe", "Socket closed", "remote process exited", "connectFullMesh")
LOW = 10  # BLEU; each kept run of docs/results has more

logger = logging.getLogger(__name__)


def train(config: DictConfig, directory: Path) -> str:
    """Train the run that `config` describes in `directory`, and score it; a summary with the commands to type next.

    Raises InputError for settings that cannot be used (all of them at once, before any data is read) or data that
    cannot be used; OSError, with a note of what is intact, for files that cannot be written; SystemExit where training
    was stopped, see `fit` and `save`.
    """
    begun = start(config, directory)
    if begun.done:
        return f"{show(begun.directory)} is finished: nothing is left to do\n"
    with contextlib.ExitStack() as held:
        run = open_training_run(config, begun, held)
        held.enter_context(resumable(run.directory))
        held.enter_context(converging(run))
        held.enter_context(remembered(run.parts.interrupt))
        task = fit(run)
        if not run.is_first_process:
            return ""
        with stoppable(run):
            trained = save(run, task)
            scores = score_splits(run)
        update_metrics(run.directory, {"config_hash": config_hash(run.config)})  # the mark of a finished run
        return summary(run, trained, scores)


def fit(run: TrainingRun) -> TranslationTask:
    """Train the model of `run` to its last step, or until it is stopped.

    Raises InputError for a checkpoint that does not fit, or memory that does not suffice; SystemExit where Lightning
    cannot stop between two steps.
    """
    valid = run.parts.data.data["valid"]
    if run.config.compile:
        cast("Transformer", run.model).compile_layers()
    task = TranslationTask(
        model=run.model,
        translator=run.translator(greedy(run.parts.search)),
        sources=valid["source"],
        references=valid["target"],
        seed=run.config.seed,
        **run.parts.task,
    )
    opening = OpenDirectory(run)
    run.parts.trainer.callbacks.insert(0, opening)  # type: ignore[attr-defined]
    try:
        with sleeping_when_crowded():
            checkpoint = run.resumed.checkpoint if run.resumed else None
            run.parts.trainer.fit(task, datamodule=run.parts.data, ckpt_path=checkpoint)
    except SystemExit as error:
        # Lightning leaves so where it is interrupted before the first step, with an exit code of its own.
        logger.info("stopped before the first step was saved; the next start repeats it")
        raise SystemExit(exit_code(run) or 128 + signal.SIGINT) from error
    except Exception as error:  # of many classes, where a checkpoint is not what it claims to be
        if refused_memory(error) is not None:
            raise InputError(f"{no_memory(error, batch_in_hand(task))}; {intact(run.directory)}") from error
        if run.config.compile and type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise InputError(f"compile=true: {first_line(error)}; leave it out") from error
        if run.parts.trainer.world_size > 1 and any(words in str(error) for words in LOST):
            raise InputError(
                "another process of this training has ended, so this one ends too; the run can be resumed: "
                f"{word('resume', show(run.directory))}"
            ) from error
        if opening.is_open or not run.resumed or isinstance(error, InputError | OSError):
            raise
        raise run.resumed.misfit(error) from error
    opening.open()  # where nothing was left to train
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    return task


def batch_in_hand(task: TranslationTask) -> str:
    """The batch of a step or validation that memory did not suffice for; empty outside of one, as in search."""
    if task.batch_shape is None:
        return ""
    (pairs, source, target), step = task.batch_shape, task.trainer.global_step + 1
    return f"a batch of {pairs} pairs, each of {source} source and {target} target tokens, in step {step}"


def intact(directory: Path) -> str:
    """The checkpoint that a run whose training failed can be resumed from."""
    try:
        path, step, _ = newest_checkpoint(directory)
    except (InputError, OSError):
        return "the run has no checkpoint to resume from"
    return f"{show(path)}, of step {step}, is intact: {word('resume', show(directory))}"


@contextlib.contextmanager
def resumable(directory: Path) -> Iterator[None]:
    """Adds to an OSError, such as of a full disk, which checkpoint of the run is intact."""
    try:
        yield
    except OSError as error:
        first = first_error(error)
        first.filename = first.filename or str(directory)  # a logger's error names no file
        first.add_note(intact(directory))
        raise first from None


@contextlib.contextmanager
def converging(run: TrainingRun) -> Iterator[None]:
    """Raises InputError, with the step in which training diverged, where the search of a validation or of the scoring
    finds no finite probabilities."""
    try:
        yield
    except NotFiniteError as error:
        raise run.parts.task["skipped"].diverged(run.parts.trainer.global_step) from error


def save(run: TrainingRun, task: TranslationTask) -> dict[str, Any]:
    """Save the weights to use and begin metrics.json with the figures of training, which are returned.

    Raises SystemExit where training was stopped: 130 for Ctrl-C, 143 for SIGTERM. The saved model can be used.
    """
    figures = training_figures(run)
    weights, figures["weights"] = scored_weights(run.parts, task)
    save_weights(weights, run.directory / "model.safetensors")
    begin_metrics(run.directory, figures)
    if code := exit_code(run):
        step = run.parts.trainer.global_step
        logger.info("stopped at step %d; the model so far can be used. Resume with:", step)
        logger.info("  %s", again(run))
        raise SystemExit(code)
    return figures


def again(run: TrainingRun) -> str:
    """The command that resumes a run; extensions are typed again, since no config brings code."""
    own = [f"extensions=[{','.join(run.config.extensions)}]"] if run.config.extensions else []
    return command("train", f"resume={hydra_text(show(run.directory))}", *own)


def exit_code(run: TrainingRun) -> int:
    """The exit code of a run that was asked to stop, else 0. Lightning takes a SIGTERM before the first step, and after
    the last one."""
    return run.parts.interrupt.exit_code or (128 + signal.SIGTERM if run.parts.trainer.received_sigterm else 0)


@contextlib.contextmanager
def remembered(interrupt: StopOnInterrupt) -> Iterator[None]:
    """Signals to stop that come before the first step or after the last one, where Lightning or nobody takes them, end
    the process after that step, or before the scoring. A second one kills."""

    def remember(number: int) -> None:
        if interrupt.exit_code:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        interrupt.exit_code = 128 + number

    with signals_to(remember):
        yield


@contextlib.contextmanager
def stoppable(run: TrainingRun) -> Iterator[None]:
    """Signals to stop end the process at once, with a line and exit code; a second one kills. For what has no state to
    save. Raises SystemExit: 130 for Ctrl-C, 143 for SIGTERM, 138 for SIGUSR1, 140 for
    SIGUSR2."""
    code = 0

    def stop(number: int) -> None:
        nonlocal code
        code = 128 + number
        for each in STOP:
            signal.signal(each, signal.SIG_DFL)
        logger.info("stopped before all splits were scored. Score them with:")
        logger.info("  %s", again(run))
        raise SystemExit(code)

    with signals_to(stop):
        try:
            yield
        except Exception as error:
            if code:  # a library, such as that which reads weights, has made another error of the exit
                raise SystemExit(code) from error
            raise


def training_figures(run: TrainingRun) -> dict[str, Any]:
    """The part of metrics.json about training itself."""
    parts, model = run.parts, run.model
    progress, step, skipped = parts.progress, parts.trainer.global_step, parts.task["skipped"].total
    return {
        "seed": run.config.seed,
        "parameters": parameter_count(model),
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
    parts = run.parts
    opened = Run(run.directory, run.config, run.model, run.tokenizer, run.translator(parts.search))
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
        f"{training['tokens_per_second']:,.0f} real tokens/s without\n"
        + (f"steps skipped, since their gradients were not finite: {skipped:,}\n" if skipped else "")
        + (f"{verdict(weights)}\n" if average_lost else "")
        + f"run directory: {place}   (model.safetensors, metrics.json, test.hyp.{run.parts.data.target_language}, "
        "train.log)\n"
        "next:  " + "\n       ".join(commands)
    )
    return "\n\n".join(blocks) + "\n"
