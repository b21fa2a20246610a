"""Configs of older runs: read with today's names of classes and settings, and hashed with the names of their time."""

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
OLDEST = {new: old for old, new in RENAMED.items()}


def with_new_names(config: Any) -> Any:
    """A copy of a config, as plain containers, with today's classes, and the corpus in `data` itself."""
    renamed = _renamed(config)
    data = renamed.get("data") if isinstance(renamed, dict) else None
    if isinstance(data, dict) and isinstance(data.get("corpus"), dict):
        data |= data.pop("corpus")
    return renamed


def _renamed(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: RENAMED.get(value, value) if key == "_target_" else _renamed(value) for key, value in node.items()}
    return [_renamed(value) for value in node] if isinstance(node, list) else node


def oldest_name(target: Any) -> Any:
    """What a class was called first; another value as it is."""
    return OLDEST.get(target, target) if isinstance(target, str) else target
