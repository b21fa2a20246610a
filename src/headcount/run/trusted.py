"""Trusted classes: the only ones that a run's config may build."""

import re
from collections.abc import Collection
from typing import Any

from headcount.errors import InputError

ATTENTION = {
    "headcount.model.attention.ScaledDotProduct",
    "headcount.model.gaussian_window.GaussianWindow",
    "headcount.model.score_functions.Additive",
    "headcount.model.score_functions.LuongDot",
    "headcount.model.score_functions.LuongGeneral",
}
# Classes that a run's config may build, by setting. `_target_` names code to call, so somebody else's config would be
# code, unless only exact names are allowed in exact places. `trust=[...]` on the command line adds your own.
TRUSTED = {
    "averaging": {
        "headcount.training.averaging.BestCheckpoint",
        "headcount.training.averaging.CheckpointAverage",
        "headcount.training.averaging.ExponentialAverage",
    },
    "checkpoint": {"headcount.training.callbacks.LastCheckpoint"},
    "data": {
        "headcount.data.corpora.FilesCorpus",
        "headcount.data.corpora.HubCorpus",
        "headcount.grammar.Copy",
        "headcount.grammar.Grammar",
    },
    "data.cleaning": {"headcount.data.cleaning.Cleaning"},
    "logger.*": {
        "pytorch_lightning.loggers.CSVLogger",
        "pytorch_lightning.loggers.MLFlowLogger",
        "pytorch_lightning.loggers.TensorBoardLogger",
        "pytorch_lightning.loggers.WandbLogger",
    },
    "loss": {"headcount.training.loss.LabelSmoothing", "headcount.training.loss.RDrop"},
    "model": {"headcount.model.recurrent.Recurrent", "headcount.model.transformer.Transformer"},
    "model.cross_attention": ATTENTION,
    "model.self_attention": ATTENTION,
    "optimizer": {"torch.optim.AdamW"},
    "schedule": {
        "headcount.training.schedule.Constant",
        "headcount.training.schedule.Cosine",
        "headcount.training.schedule.InverseSquareRoot",
        "headcount.training.schedule.Noam",
    },
    "search": {
        "headcount.decoding.beam.BeamSearch",
        "headcount.decoding.diverse.DiverseBeamSearch",
        "headcount.decoding.mbr.MinimumBayesRisk",
        "headcount.decoding.sampling.Sampling",
    },
    "segmentation": {
        "headcount.data.subword_sampling.BpeDropout",
        "headcount.data.subword_sampling.SampledSegmentation",
    },
    "tokenizer": {"headcount.data.tokenizer.SentencePiece", "headcount.data.tokenizer.SentencePiecePair"},
    "trainer": {"pytorch_lightning.Trainer"},
    "trainer.strategy": {"pytorch_lightning.strategies.DDPStrategy"},
}


def check_targets(node: Any, setting: str, trust: Collection[str], where: str = "") -> None:
    """Raises InputError if `node`, of a run's config, names something to build that is not trusted, or interpolates.

    setting: the node's name, empty for a whole config. trust: class names to allow anywhere beside `TRUSTED`. where:
    the beginning of the message.
    """
    if isinstance(node, dict):
        target = node.get("_target_")
        slot = re.sub(r"^logger\.[^.]+$", "logger.*", setting)
        if target is not None and target not in trust and target not in TRUSTED.get(slot, ()):
            raise InputError(
                f"{where}{setting}: the run's config wants to build {target!r}, which headcount does not build there; "
                f"if you know that code, add trust=[{target}]"
            )
        for key, value in node.items():
            check_targets(value, f"{setting}.{key}" if setting else str(key), trust, where)
    elif isinstance(node, list):
        for value in node:
            check_targets(value, setting, trust, where)
    elif isinstance(node, str) and "${" in node:
        raise InputError(f"{where}{setting}: the run's config.yaml must be resolved, but holds {node!r}")
