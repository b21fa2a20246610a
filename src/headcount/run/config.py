"""From config to objects: what may be built, and one line for what cannot."""

import os
from datetime import datetime
from pathlib import Path
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from headcount.data.module import TranslationData
from headcount.data.tokenizer import Tokenizer
from headcount.errors import InputError

# What a config that comes with a run may build. `_target_` names code to call, so a config that somebody else made is
# code unless each exact name is known. `trust=[...]` on the command line adds names of your own.
TRUSTED = frozenset(
    {
        "headcount.data.cleaning.Cleaning",
        "headcount.data.corpora.FilesCorpus",
        "headcount.data.corpora.HubCorpus",
        "headcount.data.grammar.Grammar",
        "headcount.data.tokenizer.SentencePiece",
        "headcount.decoding.translator.Search",
        "headcount.model.attention.ScaledDotProduct",
        "headcount.model.transformer.Transformer",
        "headcount.training.averaging.CheckpointAverage",
        "headcount.training.callbacks.LastCheckpoint",
        "headcount.training.loss.LabelSmoothing",
        "headcount.training.schedule.InverseSquareRoot",
        "pytorch_lightning.Trainer",
        "pytorch_lightning.loggers.CSVLogger",
        "pytorch_lightning.loggers.TensorBoardLogger",
        "pytorch_lightning.strategies.DDPStrategy",
        "torch.optim.AdamW",
    }
)


def run_directory(resume: str | None) -> str:
    """Where a single run goes: the run to go on with, or a new folder named after the time."""
    if resume:
        return str(Path(resume).resolve())
    if int(os.environ.get("RANK", 0)) > 0:
        return "."  # the first process says where: see `shared_directory`
    return f"runs/{datetime.now():%Y-%m-%d_%H-%M-%S}"


def peak_rate(d_model: int) -> float:
    """Peak learning rate by width: 5e-3 at d_model 128, and inversely proportional to it."""
    return 5e-3 * 128 / d_model


def group_count() -> int:
    """Machines of a torchrun job."""
    return int(os.environ.get("WORLD_SIZE", 1)) // int(os.environ.get("LOCAL_WORLD_SIZE", 1))


def register_resolvers() -> None:
    """What conf/ may write between ${ and }, beside Hydra's own."""
    for resolver in (run_directory, peak_rate, group_count):
        OmegaConf.register_new_resolver(resolver.__name__, resolver, replace=True)


def build(node: Any, setting: str, trusted: frozenset[str] | None = None, **arguments: Any) -> Any:
    """The object that `node` describes. Raises InputError naming `setting`, with the constructor's own message.

    trusted: if given, the only `_target_`s allowed.
    """
    if trusted is not None:
        _check_targets(OmegaConf.to_container(node, resolve=False), setting, trusted)
    try:
        return instantiate(node, **arguments)
    except InstantiationException as error:
        cause = error.__cause__ or error
        message = str(cause).splitlines()[0]
        if isinstance(cause, InputError | ValueError):
            raise InputError(message) from error
        raise InputError(f"{setting}: {message}") from error


def _check_targets(node: Any, setting: str, trusted: frozenset[str]) -> None:
    if isinstance(node, dict):
        target = node.get("_target_")
        if target is not None and target not in trusted:
            raise InputError(
                f"{setting}: the run's config wants to build {target!r}, which is not a part of headcount; if you know "
                f"that code, add trust=[{target}]"
            )
        for key, value in node.items():
            _check_targets(value, f"{setting}.{key}", trusted)
    elif isinstance(node, list):
        for value in node:
            _check_targets(value, setting, trusted)
    elif isinstance(node, str) and "${" in node:
        raise InputError(f"{setting}: the run's config.yaml must be resolved, but holds {node!r}")


def build_data(config: DictConfig, tokenizer: Tokenizer | None = None, trusted: frozenset[str] | None = None) -> Any:
    """The data module; with `tokenizer`, a trained one instead of the one that its settings would train."""
    data = config.data
    return TranslationData(
        corpus=build(data.corpus, "data.corpus", trusted),
        tokenizer=tokenizer or build(config.tokenizer, "tokenizer", trusted),
        cleaning=build(data.cleaning, "data.cleaning", trusted),
        batch_tokens=data.batch_tokens,
        max_length=data.max_length,
        directory=data.directory,
        workers=data.workers,
        hide_source=data.hide_source,
        seed=config.seed,
        accumulation=config.trainer.accumulate_grad_batches,
    )
