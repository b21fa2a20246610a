"""Parts of a Transformer that no other engine has: reasons why a run cannot be exported, each with what to change."""

from collections.abc import Iterator
from typing import Any

from headcount.model.attention import ScaledDotProduct
from headcount.model.feed_forward import FEED_FORWARDS
from headcount.model.layers import RESIDUALS
from headcount.model.multi_head import MultiHeadAttention
from headcount.model.positions import POSITIONS
from headcount.model.score_functions import LuongDot
from headcount.model.settings import chosen
from headcount.model.transformer import Transformer
from headcount.run.opened import Run


def missing(run: Run, engine: str) -> list[str]:
    """A line for each part of a run that neither CTranslate2 nor transformers has. engine: the name of one of them."""
    model = run.model
    if type(model) is not Transformer:
        return [f"its model is {type(model).__name__}: {engine} has the Transformer alone; train with model=nano"]
    return list(dict.fromkeys(_missing(run, model, engine)))


def attentions(model: Transformer) -> Iterator[tuple[str, MultiHeadAttention]]:
    """Every attention, with the name of its part in a layer: self_attention or cross_attention."""
    for layer in (*model.encoder, *model.decoder):
        for name, part in layer.named_children():
            if isinstance(part, MultiHeadAttention):
                yield name, part


def norm_of(model: Transformer) -> str:
    """pre or post; another class by its name."""
    layer: Any = model.encoder[0]
    return chosen(layer.residuals[0], RESIDUALS)


def positions_of(model: Transformer) -> str:
    """sinusoidal, learned or rotary; another class by its name."""
    return chosen(model.positions["source"], POSITIONS)


def feed_forward_of(model: Transformer) -> str:
    """relu, gelu or swiglu; another class by its name."""
    return chosen(model.encoder[0].feed_forward, FEED_FORWARDS)


def _missing(run: Run, model: Transformer, engine: str) -> Iterator[str]:
    for name, part in attentions(model):
        if part.kind not in (ScaledDotProduct, LuongDot):
            yield f"model.{name} is {part.kind.__name__}: {engine} has dot-products; train with model/{name}=scaled_dot"
        if part.heads.local:
            local = part.heads.local
            yield f"model.local_heads={local}: {engine} has no heads with a window; train with model.local_heads=0"
        if part.qk_norm:
            yield f"model.qk_norm: {engine} has no norm of queries and keys by head; train with model.qk_norm=null"
    if model.output.cap is not None:
        yield f"model.logit_cap={model.output.cap:g}: {engine} has no cap of logits; train with model.logit_cap=null"
    if run.translator.hide_source:
        yield "data.hide_source=true: its model does not read the source; train with data.hide_source=false"
    for name, found, known in (
        ("norm", norm_of(model), RESIDUALS),
        ("positions", positions_of(model), POSITIONS),
        ("feed_forward", feed_forward_of(model), FEED_FORWARDS),
    ):
        if found not in known:
            yield f"model.{name} is {found}: {engine} has {', '.join(known)} alone; train with one of them"
