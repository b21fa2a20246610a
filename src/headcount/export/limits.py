"""Limits of the formats: what a run may have that a format lacks, each with what to change."""

from collections.abc import Iterator, Mapping
from typing import Any

from headcount.export.attention import common_shape
from headcount.model.attention import ScaledDotProduct
from headcount.model.attention_kinds import LuongDot
from headcount.model.feed_forward import FEED_FORWARDS
from headcount.model.multi_head import MultiHeadAttention
from headcount.model.positions import POSITIONS
from headcount.model.transformer import Transformer
from headcount.run.opened import Run


def unsupported(run: Run, format: str) -> list[str]:
    """Reasons why a format cannot hold a run, each with what to change; none if it can."""
    if type(run.model) is not Transformer:
        found = [(f"its model is {type(run.model).__name__}", "the Transformer alone; train with model=nano")]
    else:
        found = [*_limits(run.model), *(_limits_of_transformers(run.model) if format == "huggingface" else [])]
    return list(dict.fromkeys(f"{has}: format={format} has {lacks}" for has, lacks in found))


def chosen(part: object, choices: Mapping[str, type]) -> str:
    """The name by which a part was chosen; the name of its class, if it is none of the choices."""
    return next((name for name, kind in choices.items() if kind is type(part)), type(part).__name__)


def kinds(model: Transformer) -> dict[str, str]:
    """The option of norm, positions and feed_forward."""
    first: Any = model.encoder[0]
    return {
        "norm": "pre" if first.residuals[0].norm_first else "post",
        "positions": chosen(model.positions["source"], POSITIONS),
        "feed_forward": chosen(first.feed_forward, FEED_FORWARDS),
    }


def _limits(model: Any) -> Iterator[tuple[str, str]]:
    """Settings of a run that no format can hold, and what they have, with what to train with."""
    parts = [each for layer in (*model.encoder, *model.decoder) for each in layer.named_children()]
    for name, part in parts:
        if not isinstance(part, MultiHeadAttention):
            continue
        if part.kind not in (ScaledDotProduct, LuongDot):
            lacks = f"dot-products alone; train with model.{name}=scaled_dot"
            yield f"model.{name} is {part.kind.__name__}", lacks
        if part.heads.local:
            yield "model.local_heads", "no heads with a window; train with model.local_heads=0"
        if part.qk_norm:
            yield "model.qk_norm", "no norm of queries and keys; train with model.qk_norm=null"
        if part.output_gate is not None:
            yield "model.head_gate", "no gates of heads; train with model.head_gate=null"
    if model.output.cap is not None:
        yield "model.logit_cap", "no cap of logits; train with model.logit_cap=null"


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
        heads, size = common_shape(getattr(model, side))
        if model.d_model % size or heads > model.d_model // size:
            yield f"model.head_size, of the {side}", "heads of one size that fill d_model; train with one num_heads"
