"""Train: from a config to a finished run directory."""

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from headcount.files import show
from headcount.run.directory import update_metrics
from headcount.run.fit import fit, save
from headcount.run.identity import config_hash
from headcount.run.opened import Run
from headcount.run.parts import Parts
from headcount.run.split_scores import evaluate_split, record
from headcount.run.tables import Figures, contrastive_table, score_table
from headcount.run.training_run import TrainingRun, open_training_run
from headcount.run.weights import verdict

logger = logging.getLogger(__name__)


def train(config: DictConfig, directory: Path, adapt: Callable[[Parts], None] | None = None) -> str:
    """Train the run that `config` describes in `directory`, and score it; a summary with the commands to type next.

    adapt: called with the parts once they are built, to add callbacks or replace parts.
    Raises InputError for settings that cannot be used (all of them at once, before any data is read) or data that
    cannot be used; SystemExit where training was stopped, see `fit` and `save`.
    """
    with contextlib.ExitStack() as held:
        run = open_training_run(config, directory, adapt, held)
        task = fit(run)
        if not run.is_first_process:
            return ""
        trained = save(run, task)
        scores = score_splits(run)
        update_metrics(run.directory, {"config_hash": config_hash(run.config)})  # the mark of a finished run
        return summary(run, trained, scores)


def score_splits(run: TrainingRun) -> dict[str, Figures]:
    """Translate and score every held-out split with the saved weights; the figures by split."""
    parts = run.parts
    opened = Run(run.directory, run.config, run.model, run.tokenizer, run.translator(parts.search), trust=None)
    scores = {}
    for split in parts.data.held_out_splits:
        logger.info("translating the %s split with %s", split, parts.search)
        rows = parts.data.data[split]
        evaluation = evaluate_split(opened, rows, parts.task["bleu_tokenizer"])
        record(opened, split, evaluation, rows["target"])
        scores[split] = evaluation.figures
    return scores


def summary(run: TrainingRun, trained: dict[str, Any], scores: dict[str, Figures]) -> str:
    """The end of a run's output: its scores, its cost and the commands to type next.

    trained: the figures of training, see `save`.
    """
    place, training, weights = show(run.directory), trained["train"], trained["weights"]
    average_lost = weights["scored"] == "last" and weights["valid_loss"]["average"] is not None
    blocks = [score_table(scores)]
    if "contrastive" in scores["test"]:
        blocks.append(contrastive_table({"test": scores["test"]}))
    blocks.append(
        f"{training['steps']:,} steps, {training['epochs']:.1f} epochs, {training['seconds']:,.0f} s, "
        f"{training['tokens_per_second']:,.0f} real tokens/s\n"
        + (f"{verdict(weights)}\n" if average_lost else "")
        + f"run directory: {place}   (model.safetensors, metrics.json, test.hyp.{run.parts.data.target_language}, "
        "train.log)\n"
        f"next:  make translate RUN={place}\n"
        f"       make evaluate RUN={place} ARGS='lowercase=true'"
        + (f"\n       tensorboard --logdir {place}/logs" if "tensorboard" in run.config.logger else "")
    )
    return "\n\n".join(blocks)
