"""Architecture of a Transformer for a page: the numbers of its weights, and how they are put together."""

from collections.abc import Iterator
from typing import Any

from torch import nn

from headcount.explore.tensors import Tensors
from headcount.model.attention import ScaledDotProduct
from headcount.model.encoder_decoder import EncoderDecoder
from headcount.model.feed_forward import FEED_FORWARDS
from headcount.model.layers import RESIDUALS
from headcount.model.multi_head import MultiHeadAttention
from headcount.model.positions import POSITIONS, Rotation
from headcount.model.score_functions import LuongDot
from headcount.model.settings import chosen
from headcount.model.transformer import Transformer


def unsupported(model: EncoderDecoder) -> list[str]:
    """Reasons why a page cannot run a model; none if it can."""
    if type(model) is not Transformer:
        return [f"its model is {type(model).__name__}, not the Transformer"]
    return sorted(set(_unsupported_parts(model)))


def _unsupported_parts(model: Transformer) -> Iterator[str]:
    layers: list[Any] = [*model.encoder, *model.decoder]
    for layer in layers:
        for name, part in layer.named_children():
            if isinstance(part, MultiHeadAttention):
                if part.kind not in (ScaledDotProduct, LuongDot):
                    yield f"model.{name} is {part.kind.__name__}, neither ScaledDotProduct nor LuongDot"
            elif name == "feed_forward" and chosen(part, FEED_FORWARDS) not in FEED_FORWARDS:
                yield f"model.feed_forward is {type(part).__name__}, not one of {', '.join(FEED_FORWARDS)}"
        for residual in layer.residuals:
            if chosen(residual, RESIDUALS) not in RESIDUALS:
                yield f"model.norm is {type(residual).__name__}, neither pre nor post"
    for positions in model.positions.values():
        if chosen(positions, POSITIONS) not in POSITIONS:
            yield f"model.positions is {type(positions).__name__}, not one of {', '.join(POSITIONS)}"


def architecture(model: Transformer, tensors: Tensors) -> dict[str, Any]:
    """All of a model that its forward pass depends on, for JSON; weights are added to `tensors`."""
    first: Any = (*model.encoder, *model.decoder)[0]
    sides = {side: _positions(positions, tensors) for side, positions in model.positions.items()}
    return {
        "width": model.d_model,
        "norm": chosen(first.residuals[0], RESIDUALS),
        "scale": model.embedding_scale,
        "source": {"embedding": tensors.add(model.source_embedding.weight), **sides["source"]},
        "target": {"embedding": tensors.add(model.target_embedding.weight), **sides["target"]},
        "encoder": [_layer(layer, f"encoder{n}", "", tensors) for n, layer in enumerate(model.encoder, 1)],
        "decoder": [_layer(layer, f"decoder{n}", f"cross{n}", tensors) for n, layer in enumerate(model.decoder, 1)],
        "encoderNorm": _norm(model.encoder_norm, tensors),
        "decoderNorm": _norm(model.decoder_norm, tensors),
        "output": tensors.add(model.output.weight),
        "cap": model.output.cap,
        "longest": model.max_length,
    }


def _positions(positions: Any, tensors: Tensors) -> dict[str, Any]:
    kind = chosen(positions, POSITIONS)
    return {"positions": kind, "table": tensors.add(positions.table) if kind == "learned" else None}


def _layer(layer: Any, own: str, cross: str, tensors: Tensors) -> dict[str, Any]:
    parts = {
        "self": _attention(layer.self_attention, own, tensors),
        "forward": _feed_forward(layer.feed_forward, tensors),
        "norms": [_norm(residual.norm, tensors) for residual in layer.residuals],
    }
    return parts | ({"cross": _attention(layer.cross_attention, cross, tensors)} if cross else {})


def _attention(part: MultiHeadAttention, name: str, tensors: Tensors) -> dict[str, Any]:
    plan = part.heads
    return {
        "name": name,
        "heads": plan.count,
        "size": plan.size,
        "shared": plan.count // plan.kv if plan.kv else 1,
        "local": plan.local,
        "window": plan.window,
        "scale": plan.size**-0.5 if part.kind is ScaledDotProduct else 1.0,
        "rotary": isinstance(part.rotate, Rotation),
        "headScales": tensors.add(part.qk_norm.scale) if part.qk_norm else None,
        **{role: _linear(getattr(part, role), tensors) for role in ("query", "key", "value", "output")},
    }


def _feed_forward(part: Any, tensors: Tensors) -> dict[str, Any]:
    kind = chosen(part, FEED_FORWARDS)
    gated = {"gate": part.gate, "first": part.up, "last": part.down} if kind == "swiglu" else {}
    layers = gated or {"first": part[0], "last": part[3]}
    return {"kind": kind, **{role: _linear(layer, tensors) for role, layer in layers.items()}}


def _linear(layer: nn.Linear, tensors: Tensors) -> list[int | None]:
    return [tensors.add(layer.weight), None if layer.bias is None else tensors.add(layer.bias)]


def _norm(norm: nn.Module, tensors: Tensors) -> list[int] | None:
    return [tensors.add(norm.weight), tensors.add(norm.bias)] if isinstance(norm, nn.LayerNorm) else None
