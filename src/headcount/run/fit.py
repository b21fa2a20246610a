"""Fit: train the model of a run with Lightning, and save the weights to use."""

import contextlib
import logging
from typing import Any

import torch
import torch.distributed as dist

from headcount.decoding.beam import greedy
from headcount.errors import InputError
from headcount.files import show
from headcount.machine import hardware, versions
from headcount.model.flops import operations_per_token
from headcount.run.directory import begin_metrics
from headcount.run.training_run import OpenDirectory, TrainingRun, parameter_count
from headcount.run.weights import scored_weights
from headcount.training.averaging import save_weights
from headcount.training.callbacks import ValidationStopped
from headcount.training.module import TranslationTask

logger = logging.getLogger(__name__)


def fit(run: TrainingRun) -> TranslationTask:
    """Train the model of `run` to its last step, or until it is stopped.

    Raises InputError for a checkpoint that does not fit, SystemExit where Lightning cannot stop between two steps.
    """
    task = training_task(run)
    opening = OpenDirectory(run)
    run.parts.trainer.callbacks.insert(0, opening)  # type: ignore[attr-defined]
    try:
        with contextlib.suppress(ValidationStopped):
            checkpoint = run.resumed.checkpoint if run.resumed else None
            run.parts.trainer.fit(task, datamodule=run.parts.data, ckpt_path=checkpoint)
    except SystemExit as error:
        # Lightning leaves so where it is interrupted, with an exit code of its own.
        raise SystemExit(run.parts.interrupt.exit_code or 130) from error
    except (RuntimeError, ValueError, KeyError) as error:
        if opening.is_open or not run.resumed or isinstance(error, (InputError, torch.OutOfMemoryError)):
            raise
        raise run.resumed.misfit(error) from error
    opening.open()  # where nothing was left to train
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    return task


def training_task(run: TrainingRun) -> TranslationTask:
    """The Lightning module of a run: its model, loss, optimizer and validation text."""
    valid = run.parts.data.data["valid"]
    return TranslationTask(
        model=run.model,
        translator=run.translator(greedy(run.parts.search)),
        sources=valid["source"],
        references=valid["target"],
        seed=run.config.seed,
        **run.parts.task,
    )


def save(run: TrainingRun, task: TranslationTask) -> dict[str, Any]:
    """Save the weights to use and begin metrics.json with the figures of training, which are returned.

    Raises SystemExit where training was stopped: 130 for Ctrl-C, 143 for SIGTERM. The saved model can be used.
    """
    figures = training_figures(run)
    weights, figures["weights"] = scored_weights(run.parts, task)
    save_weights(weights, run.directory / "model.safetensors")
    begin_metrics(run.directory, figures)
    if run.parts.interrupt.exit_code:
        step = run.parts.trainer.global_step
        logger.info("stopped at step %d; the model so far can be used. Go on with:", step)
        logger.info("  python scripts/train.py resume=%s", show(run.directory))
        raise SystemExit(run.parts.interrupt.exit_code)
    return figures


def training_figures(run: TrainingRun) -> dict[str, Any]:
    """The part of metrics.json about training itself."""
    parts, model = run.parts, run.model
    progress, step = parts.progress, parts.trainer.global_step
    return {
        "seed": run.config.seed,
        "parameters": parameter_count(model),
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
        "hardware": hardware(parts.trainer.strategy.root_device),  # the model itself is back on the CPU
    }
