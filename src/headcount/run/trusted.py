"""Trusted classes: the only ones that a run's config may build."""

import re
from collections.abc import Collection
from typing import Any

from headcount.errors import InputError


def _of(module: str, *classes: str) -> set[str]:
    return {f"{module}.{name}" for name in classes}


ATTENTION = (
    _of("headcount.model.attention", "ScaledDotProduct")
    | _of("headcount.model.gaussian_window", "GaussianWindow")
    | _of("headcount.model.score_functions", "Additive", "LuongDot", "LuongGeneral")
)
# Classes that a run's config may build, by setting. `_target_` names code to call, so somebody else's config would be
# code, unless only exact names are allowed in exact places. `trust=[...]` on the command line adds your own.
TRUSTED = {
    "averaging": _of("headcount.training.averaging", "BestCheckpoint", "CheckpointAverage", "ExponentialAverage"),
    "checkpoint": _of("headcount.training.callbacks", "LastCheckpoint"),
    "data": _of("headcount.data.corpora", "FilesCorpus", "HubCorpus") | _of("headcount.grammar", "Copy", "Grammar"),
    "data.cleaning": _of("headcount.data.cleaning", "Cleaning"),
    "logger.*": _of("pytorch_lightning.loggers", "CSVLogger", "MLFlowLogger", "TensorBoardLogger", "WandbLogger"),
    "loss": _of("headcount.training.loss", "LabelSmoothing", "RDrop", "SimCut"),
    "model": _of("headcount.model", "recurrent.Recurrent", "transformer.Transformer"),
    "model.cross_attention": ATTENTION,
    "model.self_attention": ATTENTION,
    "optimizer": _of("torch.optim", "AdamW", "NAdam")
    | _of("headcount.training", "adamw.AdamW", "muon.Muon")
    | _of("schedulefree", "AdamWScheduleFree")
    | _of("pytorch_optimizer", "SOAP"),
    "schedule": _of(
        "headcount.training.schedule", "Constant", "Cosine", "InverseSquareRoot", "Linear", "Noam", "Trapezoid"
    ),
    "search": _of(
        "headcount.decoding",
        "beam.BeamSearch",
        "diverse.DiverseBeamSearch",
        "mbr.MinimumBayesRisk",
        "sampling.Sampling",
    ),
    "segmentation": _of("headcount.data.subword_sampling", "BpeDropout", "SampledSegmentation"),
    "tokenizer": _of("headcount.data.tokenizer", "SentencePiece", "SentencePiecePair"),
    "trainer": _of("pytorch_lightning", "Trainer"),
    "trainer.strategy": _of("pytorch_lightning.strategies", "DDPStrategy")
    | _of("headcount.training.sharded", "FullySharded"),
}


# Hydra's keys that a run's config may have, by setting; others have the target alone.
HYDRA = {
    **dict.fromkeys(("logger.*", "model.cross_attention", "model.self_attention"), ("_target_", "_partial_")),
    "optimizer": ("_target_", "_partial_", "_convert_"),
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
        wrong = [key for key in node if str(key).startswith("_") and key not in HYDRA.get(slot, ("_target_",))]
        if wrong and target not in trust:
            raise InputError(f"{where}{setting}.{wrong[0]}: the run's config cannot say there how an object is built")
        for key, value in node.items():
            check_targets(value, f"{setting}.{key}" if setting else str(key), trust, where)
    elif isinstance(node, list):
        for value in node:
            check_targets(value, setting, trust, where)
    elif isinstance(node, str) and "${" in node:
        raise InputError(f"{where}{setting}: the run's config.yaml must be resolved, but holds {node!r}")
