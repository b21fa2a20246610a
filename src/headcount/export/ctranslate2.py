"""CTranslate2 models: a Transformer in the format of that engine for fast translation on CPUs and GPUs."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from headcount.data.tokenizer import save_tokenizer
from headcount.errors import InputError
from headcount.export.attention import Linear, Projections, Shape, common_shape, in_shape
from headcount.export.parts import feed_forward_of, missing, norm_of, positions_of
from headcount.model.multi_head import MultiHeadAttention
from headcount.model.transformer import Transformer
from headcount.run.alignment import AlignmentHead, alignment_head, last_cross_layer
from headcount.run.opened import Run

try:
    from ctranslate2.specs import Activation
    from ctranslate2.specs import transformer_spec as specs
    from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec
except ImportError as error:
    raise InputError(
        'ctranslate2 is not installed, which exports and translates in its format: pip install "headcount[export]"'
    ) from error

QUANTIZATIONS = ("float32", "bfloat16", "float16", "int8", "int8_float32", "int8_bfloat16", "int8_float16", "int16")


def unsupported(run: Run) -> list[str]:
    """Reasons why CTranslate2 cannot run a run, each with what to change; none if it can."""
    return missing(run, "CTranslate2")


def write_model(run: Run, folder: Path, quantization: str, longest: int) -> None:
    """Write model.bin, config.json, the vocabularies and the tokenizer into a folder.

    quantization: one of `QUANTIZATIONS`. longest: tokens of a sentence that the model has positions for, unless these
    are computed (rotary) or learned. The engine returns the attention of the `alignment_head`, or the mean of all heads
    of the last layer with cross heads. Raises InputError for damaged results of `heads`.
    """
    model: Any = deepcopy(run.model)  # CTranslate2 quantizes weights in their place
    with torch.no_grad():
        spec = specification(model, longest, alignment_head(run))
    sides = run.tokenizer.source, run.tokenizer.target
    spec.register_source_vocabulary(sides[0].vocabulary)
    spec.register_target_vocabulary(sides[1].vocabulary)
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = model.encoder[0].residuals[0].norm.eps
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(folder))
    save_tokenizer(run.tokenizer, folder)


def specification(model: Transformer, longest: int, aligning: AlignmentHead | None) -> "specs.TransformerSpec":
    """The weights and numbers of a model under CTranslate2's names."""
    encoder = common_shape(layer.self_attention for layer in model.encoder)
    decoder = common_shape(part for layer in model.decoder for part in (layer.self_attention, layer.cross_attention))
    kind = feed_forward_of(model)
    activation = {"relu": Activation.RELU, "gelu": Activation.GELU, "swiglu": Activation.SWISH}[kind]
    common: dict[str, Any] = {
        "pre_norm": norm_of(model) == "pre",
        "activation": activation,
        "ffn_glu": kind == "swiglu",
        "rotary_dim": 0 if positions_of(model) == "rotary" else None,  # else, it wants a table of positions
    }
    last = last_cross_layer(model) or len(model.decoder)
    alignment = {
        "alignment_layer": (last if aligning is None else aligning.layer) - 1,
        "alignment_heads": max(1, model.head_counts["cross_heads"][last - 1]) if aligning is None else 1,
    }
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(len(model.encoder), encoder.count, **common),
        specs.TransformerDecoderSpec(len(model.decoder), decoder.count, **common, **alignment),
    )
    for side, own, stack in (("source", spec.encoder, model.encoder), ("target", spec.decoder, model.decoder)):
        _side(own, model, side, longest)
        for number, (target, layer) in enumerate(zip(own.layer, stack, strict=True), start=1):
            first = aligning.head - 1 if aligning is not None and number == aligning.layer else 0
            _layer(target, layer, encoder if side == "source" else decoder, first)
    spec.encoder.embeddings[0].weight = model.source_embedding.weight
    spec.decoder.embeddings.weight = model.target_embedding.weight
    spec.decoder.projection.weight = model.output.weight
    return spec


def _side(spec: Any, model: Transformer, side: str, longest: int) -> None:
    spec.scale_embeddings = np.float32(model.embedding_scale)
    positions: Any = model.positions[side]
    match positions_of(model):
        case "sinusoidal":
            spec.position_encodings.encodings = positions.reaching(longest)[:longest]
        case "learned":
            spec.position_encodings.encodings = positions.table
    final: Any = model.encoder_norm if side == "source" else model.decoder_norm
    if isinstance(final, nn.LayerNorm):
        _norm(spec.layer_norm, final)


def _layer(spec: Any, layer: Any, shape: Shape, first: int) -> None:
    spec.self_attention = _attention(layer.self_attention, shape, layer.residuals[0].norm, True)
    if hasattr(layer, "cross_attention"):
        spec.attention = _attention(layer.cross_attention, shape, layer.residuals[1].norm, False, first)
    _norm(spec.ffn.layer_norm, layer.residuals[-1].norm)
    part = layer.feed_forward
    gated = hasattr(part, "gate")
    _linear(spec.ffn.linear_0, part.gate if gated else part[0])
    _linear(spec.ffn.linear_1, part.down if gated else part[3])
    if gated:
        _linear(spec.ffn.linear_0_noact, part.up)


def _attention(part: MultiHeadAttention, shape: Shape, norm: Any, own: bool, first: int = 0) -> MultiHeadAttentionSpec:
    rotated = hasattr(part.rotate, "d_head")
    spec = MultiHeadAttentionSpec(
        self_attention=own,
        head_dim=None if shape.width == part.output.out_features else shape.size,
        rotary_dim=part.heads.size if rotated else None,
    )
    _norm(spec.layer_norm, norm)
    found: Projections = in_shape(part, shape, first)
    joined = [found[:3]] if own else [found[:1], found[1:3]]
    for target, parts in zip(spec.linear, [*joined, found[3:]], strict=True):
        target.weight = torch.cat([each.weight for each in parts])
        target.bias = torch.cat([each.bias for each in parts if each.bias is not None])
    return spec


def _linear(spec: Any, linear: nn.Linear | Linear) -> None:
    spec.weight = linear.weight
    if linear.bias is not None:
        spec.bias = linear.bias


def _norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = norm.weight, norm.bias
