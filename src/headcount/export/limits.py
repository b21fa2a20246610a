"""Limits of the formats: what a run may have that a format lacks, each with what to change."""

from collections.abc import Iterator
from typing import Any

from headcount.export.attention import Shape
from headcount.model.attention import ScaledDotProduct
from headcount.model.feed_forward import FEED_FORWARDS
from headcount.model.layers import RESIDUALS
from headcount.model.multi_head import MultiHeadAttention
from headcount.model.positions import POSITIONS
from headcount.model.score_functions import LuongDot
from headcount.model.settings import chosen
from headcount.model.transformer import Transformer
from headcount.run.opened import Run

FORMATS = ["ctranslate2", "huggingface", "page"]


def unsupported(run: Run, format: str) -> list[str]:
    """Reasons why a format cannot hold a run, each with what to change; none if it can."""
    found = [f"{has}: format={format} has {lacks}" for formats, has, lacks in _limits(run) if format in formats]
    return list(dict.fromkeys(found))


def kinds(model: Transformer) -> dict[str, str]:
    """The option of norm, positions and feed_forward."""
    first: Any = model.encoder[0]
    return {
        "norm": chosen(first.residuals[0], RESIDUALS),
        "positions": chosen(model.positions["source"], POSITIONS),
        "feed_forward": chosen(first.feed_forward, FEED_FORWARDS),
    }


def filling_shape(model: Any, side: str) -> Shape:
    """Heads that fill d_model and have room for all heads of "encoder" or "decoder". Raises ValueError."""
    plans = [part.heads for layer in getattr(model, side) for part in layer.children() if hasattr(part, "heads")]
    size = max(plan.size for plan in plans)
    heads = model.d_model // size
    if model.d_model % size or max(plan.count for plan in plans) > heads:
        raise ValueError(f"model.head_size, of the {side}")
    return Shape(heads, size)


def _limits(run: Run) -> Iterator[tuple[list[str], str, str]]:
    """Formats, the setting of the run that they cannot hold, and what they have, with what to train with."""
    model: Any = run.model
    if type(model) is not Transformer:
        yield FORMATS, f"its model is {type(model).__name__}", "the Transformer alone; train with model=nano"
        return
    engines = ["ctranslate2", "huggingface"]
    for name, part in (each for layer in (*model.encoder, *model.decoder) for each in layer.named_children()):
        if not isinstance(part, MultiHeadAttention):
            continue
        if part.kind not in (ScaledDotProduct, LuongDot):
            lacks = f"dot-products alone; train with model.{name}=scaled_dot"
            yield FORMATS, f"model.{name} is {part.kind.__name__}", lacks
        if part.heads.local:
            yield engines, "model.local_heads", "no heads with a window; train with model.local_heads=0"
        if part.qk_norm:
            yield engines, "model.qk_norm", "no norm of queries and keys; train with model.qk_norm=null"
    if model.output.cap is not None:
        yield engines, "model.logit_cap", "no cap of logits; train with model.logit_cap=null"
    if run.translator.hide_source:
        yield FORMATS, "data.hide_source=true", "models that read the source; train with data.hide_source=false"
    for has, lacks in _limits_of_transformers(model):
        yield ["huggingface"], has, lacks


def _limits_of_transformers(model: Any) -> Iterator[tuple[str, str]]:
    kind = kinds(model)
    if kind["positions"] != "sinusoidal":
        yield f"model.positions={kind['positions']}", "sinusoids alone; train with model.positions=sinusoidal"
    if kind["feed_forward"] == "swiglu":
        yield "model.feed_forward=swiglu", "relu and gelu alone; train with one of these"
    if kind["norm"] == "pre" and model.output.weight is not model.source_embedding.weight:
        yield "model.norm=pre", "it with tied embeddings and one vocabulary; train with these, or with model.norm=post"
    if model.embedding_scale not in (1.0, model.d_model**0.5):
        scale = f"model.embedding_scale={model.embedding_scale:g}"
        yield scale, "1 and sqrt(d_model) alone; train with one of these"
    for side in ("encoder", "decoder"):
        try:
            filling_shape(model, side)
        except ValueError as error:
            yield str(error), "heads of one size that fill d_model; train with one num_heads"
