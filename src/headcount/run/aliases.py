"""Older configs in today's terms: classes that were renamed, and settings that came later.

A run's config is read with today's names, its parts are built with today's settings, and its hash is made of these.
"""

from typing import Any

RENAMED = {  # old: new
    "headcount.data.grammar.Copy": "headcount.grammar.Copy",
    "headcount.data.grammar.Grammar": "headcount.grammar.Grammar",
    "headcount.data.segmentation.BpeDropout": "headcount.data.subword_sampling.BpeDropout",
    "headcount.data.segmentation.SampledSegmentation": "headcount.data.subword_sampling.SampledSegmentation",
    "headcount.data.tokenizer_pair.SentencePiecePair": "headcount.data.tokenizer.SentencePiecePair",
    "headcount.decoding.risk.MinimumBayesRisk": "headcount.decoding.mbr.MinimumBayesRisk",
    "headcount.model.scores.Additive": "headcount.model.score_functions.Additive",
    "headcount.model.scores.LuongDot": "headcount.model.score_functions.LuongDot",
    "headcount.model.scores.LuongGeneral": "headcount.model.score_functions.LuongGeneral",
    "headcount.model.window.GaussianWindow": "headcount.model.gaussian_window.GaussianWindow",
}
RENAMED_SETTINGS = {  # of the command line, which only says so; old: the advice
    "data.budget.average_every": "averaging.every (optimizer steps), or averaging.share (of the run)",
    "data.corpus": "data itself: data.corpus.seed is data.seed",
    "experiment": "recipe=NAME (choices that were measured) and study=NAME (what is compared)",
    "lineage": "study=lineage study/arm=NAME",
}
SEARCHES = ("beam.BeamSearch", "diverse.DiverseBeamSearch", "mbr.MinimumBayesRisk", "sampling.Sampling")
ADDED: dict[str, dict[str, Any]] = {  # class: {a setting that came later: its value before it existed}
    "headcount.data.corpora.FilesCorpus": dict.fromkeys(
        ("train", "valid", "test", "source_column", "target_column", "held_out", "max_pairs", "tests")
    ),
    "headcount.data.corpora.HubCorpus": {
        "streaming": False,
        **dict.fromkeys(("source_field", "target_field", "held_out", "max_pairs", "tests")),
    },
    "headcount.data.subword_sampling.BpeDropout": {"start_epoch": 0},
    "headcount.data.subword_sampling.SampledSegmentation": {"start_epoch": 0},
    "headcount.data.tokenizer.SentencePiece": {"sample_bytes": 2**25},
    "headcount.data.tokenizer.SentencePiecePair": {"sample_bytes": 2**25},
    "headcount.model.transformer.Transformer": {
        "kv_heads": None,
        "feed_forward": "relu",
        "layer_dropout": 0.0,
        "head_dropout": 0.0,
        "embedding_dropout": None,
        "qk_norm": None,
        "qk_scale": 1.0,
        "logit_cap": None,
        "init": "xavier",
        "embedding_scale": None,
        "embedding_std": None,
        "local_heads": 0,
        "local_window": 4,
        "self_attention": {"_target_": "headcount.model.attention.ScaledDotProduct", "_partial_": True},
    },
    "headcount.model.score_functions.LuongDot": {"gain": 1.0},
    "headcount.model.gaussian_window.GaussianWindow": {"gaussians": 3},
    **{f"headcount.decoding.{name}": {"max_source": 1000} for name in SEARCHES},
    "headcount.training.averaging.CheckpointAverage": {"share": 0.125},
    "headcount.training.averaging.ExponentialAverage": {"share": 0.05},
    "headcount.training.callbacks.LastCheckpoint": {"keep": [], "every_minutes": None},
    "headcount.training.loss.RDrop": {"start": 0},
}
NOT_HASHED = {  # settings of no such class that came later, by dotted name, with their value before they existed
    "data.both_directions": False,
    "data.batch_ramp": None,
    "data.batch_ramp_start": 0.25,
    "data.pad_to": 1,
    "compile": False,
}


def with_new_names(config: Any) -> Any:
    """A copy of a config, as plain containers, with today's classes, and the corpus in `data` itself."""
    renewed = _renewed(config)
    data = renewed.get("data") if isinstance(renewed, dict) else None
    if isinstance(data, dict) and isinstance(data.get("corpus"), dict):
        data |= data.pop("corpus")
    return renewed


def _renewed(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: RENAMED.get(value, value) if key == "_target_" else _renewed(value) for key, value in node.items()}
    return [_renewed(value) for value in node] if isinstance(node, list) else node


def with_added_settings(node: Any) -> Any:
    """A copy of a config, as plain containers, with the settings of `ADDED` that it lacks."""
    if isinstance(node, dict):
        settings: dict[str, Any] = {key: with_added_settings(value) for key, value in node.items()}
        target = str(node.get("_target_"))
        return {**ADDED.get(RENAMED.get(target, target), {}), **settings}
    return [with_added_settings(value) for value in node] if isinstance(node, list) else node
