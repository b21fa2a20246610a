"""CTranslate2 models: a Transformer in the format of that engine for fast translation on CPUs and GPUs."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from headcount.data.tokenizer import save_tokenizer
from headcount.errors import InputError
from headcount.export.attention import Shape, common_shape, in_shape
from headcount.export.limits import kinds
from headcount.model.multi_head import MultiHeadAttention
from headcount.model.transformer import Transformer
from headcount.run.opened import Run

try:
    from ctranslate2.specs import Activation
    from ctranslate2.specs import transformer_spec as specs
    from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec
except ImportError as error:
    raise InputError('ctranslate2 is not installed: pip install "headcount[export]"') from error


def write_model(run: Run, folder: Path, quantization: str, longest: int) -> None:
    """Write model.bin, config.json, the vocabularies and the tokenizer into a folder.

    quantization: of the weights. longest: tokens of a sentence that the model has positions for, unless these
    are computed (rotary) or learned.
    """
    model: Any = deepcopy(run.model)  # CTranslate2 quantizes weights in their place
    with torch.no_grad():
        spec = specification(model, longest)
    spec.register_source_vocabulary(run.tokenizer.source.vocabulary)
    spec.register_target_vocabulary(run.tokenizer.target.vocabulary)
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = model.encoder[0].residuals[0].norm.eps
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(folder))
    save_tokenizer(run.tokenizer, folder)


def specification(model: Transformer, longest: int) -> "specs.TransformerSpec":
    """The weights and numbers of a model under CTranslate2's names."""
    kind = kinds(model)
    shapes = {"source": common_shape(model.encoder), "target": common_shape(model.decoder)}
    activation = {"relu": Activation.RELU, "gelu": Activation.GELU, "swiglu": Activation.SWISH}[kind["feed_forward"]]
    common: dict[str, Any] = {
        "pre_norm": kind["norm"] == "pre",
        "activation": activation,
        "ffn_glu": kind["feed_forward"] == "swiglu",
        "rotary_dim": 0 if kind["positions"] == "rotary" else None,  # else, it wants a table of positions
    }
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(len(model.encoder), shapes["source"].heads, **common),
        specs.TransformerDecoderSpec(len(model.decoder), shapes["target"].heads, **common),
    )
    for side, own, stack in (("source", spec.encoder, model.encoder), ("target", spec.decoder, model.decoder)):
        own.scale_embeddings = np.float32(model.embedding_scale)
        positions: Any = model.positions[side]
        if kind["positions"] != "rotary":
            table = positions.table if kind["positions"] == "learned" else positions.reaching(longest)[:longest]
            own.position_encodings.encodings = table
        final: Any = model.encoder_norm if side == "source" else model.decoder_norm
        if isinstance(final, nn.LayerNorm):
            _norm(own.layer_norm, final)
        for target, layer in zip(own.layer, stack, strict=True):
            _layer(target, layer, shapes[side])
    spec.encoder.embeddings[0].weight = model.source_embedding.weight
    spec.decoder.embeddings.weight = model.target_embedding.weight
    spec.decoder.projection.weight = model.output.weight
    return spec


def _layer(spec: Any, layer: Any, shape: Shape) -> None:
    spec.self_attention = _attention(layer.self_attention, shape, layer.residuals[0].norm, True)
    if hasattr(layer, "cross_attention"):
        spec.attention = _attention(layer.cross_attention, shape, layer.residuals[1].norm, False)
    _norm(spec.ffn.layer_norm, layer.residuals[-1].norm)
    part = layer.feed_forward
    gated = hasattr(part, "gate")
    _linear(spec.ffn.linear_0, part.gate if gated else part[0])
    _linear(spec.ffn.linear_1, part.down if gated else part[3])
    if gated:
        _linear(spec.ffn.linear_0_noact, part.up)


def _attention(part: MultiHeadAttention, shape: Shape, norm: Any, own: bool) -> MultiHeadAttentionSpec:
    spec = MultiHeadAttentionSpec(
        self_attention=own,
        head_dim=None if shape.heads * shape.size == part.output.out_features else shape.size,
        rotary_dim=part.heads.size if hasattr(part.rotate, "d_head") else None,
    )
    _norm(spec.layer_norm, norm)
    query, key, value, output = in_shape(part, shape)
    joined = [[query, key, value], [output]] if own else [[query], [key, value], [output]]
    for target, parts in zip(spec.linear, joined, strict=True):
        target.weight = torch.cat([each.weight for each in parts])
        target.bias = torch.cat([each.bias for each in parts])
    return spec


def _linear(spec: Any, linear: nn.Linear) -> None:
    spec.weight = linear.weight
    if linear.bias is not None:
        spec.bias = linear.bias


def _norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = norm.weight, norm.bias
