"""Limits of the formats: one list of what a run may have that a format lacks, each with what to change."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headcount.model.attention import ScaledDotProduct
from headcount.model.attention_kinds import LuongDot
from headcount.model.feed_forward import FEED_FORWARDS
from headcount.model.layers import RESIDUALS
from headcount.model.multi_head import MultiHeadAttention
from headcount.model.positions import POSITIONS
from headcount.model.transformer import Transformer
from headcount.run.opened import Run

ENGINES = {"ctranslate2": "CTranslate2", "huggingface": "transformers"}
NAMES = ENGINES | {"page": "the page"}
Limit = tuple[Sequence[str], str, str, str]  # formats, setting, what they have, what to train with


def unsupported(run: Run, format: str) -> list[str]:
    """Reasons why a format cannot hold a run, each with what to change; none if it can."""
    found = [
        f"{setting}: {NAMES[format]} has {has}; train with {instead}"
        for formats, setting, has, instead in _limits(run)
        if format in formats
    ]
    return list(dict.fromkeys(found))


def chosen(part: object, choices: Mapping[str, type]) -> str:
    """The name by which a part was chosen; the name of its class, if it is none of the choices."""
    return next((name for name, kind in choices.items() if kind is type(part)), type(part).__name__)


def kinds(model: Transformer) -> dict[str, str]:
    """The option of norm, positions and feed_forward; of a class of one's own its name."""
    first: Any = model.encoder[0]
    return {
        "norm": chosen(first.residuals[0], RESIDUALS),
        "positions": chosen(model.positions["source"], POSITIONS),
        "feed_forward": chosen(first.feed_forward, FEED_FORWARDS),
    }


def head_size(model: Transformer, side: str) -> int | None:
    """The size of heads that fill d_model and have room for those of "encoder" or "decoder"; None if there is none."""
    layers: Any = getattr(model, side)
    plans = [part.heads for layer in layers for part in layer.children() if hasattr(part, "heads")]
    size = max(plan.size for plan in plans)
    fits = model.d_model % size == 0 and max(plan.count for plan in plans) <= model.d_model // size
    return size if fits else None


def _limits(run: Run) -> Iterator[Limit]:
    model: Any = run.model
    if type(model) is not Transformer:
        yield list(NAMES), f"its model is {type(model).__name__}", "the Transformer alone", "model=nano"
        return
    parts = [part for layer in (*model.encoder, *model.decoder) for part in layer.named_children()]
    for name, part in parts:
        if not isinstance(part, MultiHeadAttention):
            continue
        if part.kind not in (ScaledDotProduct, LuongDot):
            instead = f"model.{name}=scaled_dot"
            yield list(NAMES), f"model.{name} is {part.kind.__name__}", "dot-products alone", instead
        if part.heads.local:
            yield list(ENGINES), "model.local_heads", "no heads with a window", "model.local_heads=0"
        if part.qk_norm:
            yield list(ENGINES), "model.qk_norm", "no norm of queries and keys by head", "model.qk_norm=null"
    if model.output.cap is not None:
        yield list(ENGINES), "model.logit_cap", "no cap of logits", "model.logit_cap=null"
    if run.translator.hide_source:
        yield list(NAMES), "data.hide_source=true", "models that read the source alone", "data.hide_source=false"
    known: dict[str, Any] = {"norm": RESIDUALS, "positions": POSITIONS, "feed_forward": FEED_FORWARDS}
    for name, found in kinds(model).items():
        if found not in known[name]:
            yield list(NAMES), f"model.{name} is {found}", f"{', '.join(known[name])} alone", "one of these"
    yield from _of_transformers(model)


def _of_transformers(model: Any) -> Iterator[Limit]:
    kind = kinds(model)
    if kind["positions"] in ("learned", "rotary"):
        yield ["huggingface"], f"model.positions={kind['positions']}", "sinusoids alone", "model.positions=sinusoidal"
    if kind["feed_forward"] == "swiglu":
        yield ["huggingface"], "model.feed_forward=swiglu", "relu and gelu alone", "one of these"
    if kind["norm"] == "pre" and model.output.weight is not model.source_embedding.weight:
        instead = "model.tied_embeddings=true and one vocabulary, or with model.norm=post"
        yield ["huggingface"], "model.norm=pre", "it with one embedding of source, target and output alone", instead
    if model.embedding_scale not in (1.0, model.d_model**0.5):
        scale = f"model.embedding_scale={model.embedding_scale:g}"
        yield ["huggingface"], scale, "sqrt(d_model) and 1 alone", "one of these"
    for side in ("encoder", "decoder"):
        if head_size(model, side) is None:
            setting = f"model.head_size, of the {side}"
            yield ["huggingface"], setting, "heads of one size that fill d_model", "one number of heads"
