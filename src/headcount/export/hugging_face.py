"""Hugging Face folders: a Transformer as an architecture that transformers has, with its tokenizer.

With norm "pre" this is Pegasus (Zhang et al. 2020), with "post" Marian (Junczys-Dowmunt et al. 2018). Both have
sinusoids from position 0, all sines first and all cosines after, so the numbers of a state change places.
"""

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from headcount.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from headcount.export.attention import Linear, Shape, in_shape
from headcount.export.parts import feed_forward_of, missing, norm_of, positions_of
from headcount.files import write_text
from headcount.model.transformer import Transformer
from headcount.run.opened import Run

ENGINE = "transformers"
QUANTIZATIONS = ("float32", "bfloat16", "float16")
ARCHITECTURES = {"pre": ("pegasus", "PegasusForConditionalGeneration"), "post": ("marian", "MarianMTModel")}
Weights = dict[str, Tensor]


class Shapes(NamedTuple):
    """The shapes of all attentions of the encoder, and of the decoder."""

    encoder: Shape
    decoder: Shape


def unsupported(run: Run) -> list[str]:
    """Reasons why transformers has no architecture for a run, each with what to change; none if it has."""
    found = missing(run, ENGINE)
    model: Any = run.model
    if not isinstance(model, Transformer):
        return found
    norm, kind, positions = norm_of(model), feed_forward_of(model), positions_of(model)
    if positions in ("learned", "rotary"):
        found.append(f"model.positions={positions}: {_has('sinusoidal ones')}; train with model.positions=sinusoidal")
    if kind == "swiglu":
        found.append(f"model.feed_forward=swiglu: {_has('relu and gelu')}; train with one of these")
    if norm == "pre" and model.output.weight is not model.source_embedding.weight:
        found.append(
            f"model.norm=pre with several embeddings: {_has('one for source, target and output')} with norm pre; train "
            "with model.tied_embeddings=true and one vocabulary, or with model.norm=post"
        )
    if model.embedding_scale not in (1.0, model.d_model**0.5):
        found.append(
            f"model.embedding_scale={model.embedding_scale:g}: {_has('sqrt(d_model) and 1')}; train with one of these"
        )
    for side in ("encoder", "decoder"):
        if _shape(model, side) is None:
            found.append(
                f"model.head_size: {ENGINE} has heads of one size that fill model.d_model={model.d_model}; those of "
                f"the {side} do not fit into them; train with one number of heads"
            )
    return found


def _has(what: str) -> str:
    return f"its architectures in {ENGINE} have {what} alone"


def _shape(model: Transformer, side: str) -> Shape | None:
    """Heads that fill d_model and have room for those of a side; None if there are no such heads."""
    layers: Any = getattr(model, side)
    plans = [part.heads for layer in layers for part in layer.children() if hasattr(part, "heads")]
    size = max(plan.size for plan in plans)
    fits = model.d_model % size == 0 and max(plan.count for plan in plans) <= model.d_model // size
    return Shape(model.d_model // size, size) if fits else None


def write_model(run: Run, folder: Path, quantization: str, longest: int) -> None:
    """Write the weights, the settings and the tokenizer of a run into a folder.

    quantization: one of `QUANTIZATIONS`. longest: tokens of a sentence that the model has positions for.
    """
    model: Any = run.model
    shapes = Shapes(*(_shape(model, side) for side in ("encoder", "decoder")))  # type: ignore[arg-type]
    with torch.no_grad():
        found = weights(model, shapes, longest)
        stored = {name: each.to(getattr(torch, quantization)).contiguous() for name, each in found.items()}
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    _write(folder / "config.json", settings(run, shapes, quantization, longest))
    shutil.copymode(folder / "config.json", folder / "model.safetensors")  # it was for its owner alone
    _write(folder / "generation_config.json", generation(run, longest))
    _write_tokenizer(run, folder, longest)


def settings(run: Run, shapes: Shapes, quantization: str, longest: int) -> dict[str, Any]:
    """config.json: the architecture and its numbers."""
    model: Any = run.model
    kind, name = ARCHITECTURES[norm_of(model)]
    one = model.output.weight is model.source_embedding.weight
    found = {
        "model_type": kind,
        "architectures": [name],
        "dtype": quantization,
        "torch_dtype": quantization,  # its name before transformers 5
        "d_model": model.d_model,
        "vocab_size": model.source_embedding.num_embeddings,
        "max_position_embeddings": longest,
        "activation_function": feed_forward_of(model),
        "scale_embedding": model.embedding_scale != 1.0,
        "static_position_embeddings": True,
        "normalize_before": kind == "pegasus",
        "tie_word_embeddings": one,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
        **{name: run.config.model.get(name, 0.0) for name in ("dropout", "attention_dropout", "activation_dropout")},
        "is_encoder_decoder": True,
        **special_tokens(),
    }
    for side, stack, shape in (("encoder", model.encoder, shapes.encoder), ("decoder", model.decoder, shapes.decoder)):
        found |= {f"{side}_layers": len(stack), f"{side}_attention_heads": shape.count}
        found |= {f"{side}_ffn_dim": stack[0].feed_forward[0].out_features}
    if kind == "marian":
        found |= {"share_encoder_decoder_embeddings": one, "decoder_vocab_size": model.output.out_features}
    return found


def special_tokens() -> dict[str, int]:
    return {
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "forced_eos_token_id": EOS,
    }


def generation(run: Run, longest: int) -> dict[str, Any]:
    """generation_config.json: the beam of the run. transformers divides by length^length_penalty."""
    search = run.translator.search
    beam = getattr(search, "beam", 1)
    penalty = {"length_penalty": float(getattr(search, "alpha", 1.0))} if beam > 1 else {}
    return {**special_tokens(), "max_length": longest, "num_beams": beam, **penalty}


def weights(model: Transformer, shapes: Shapes, longest: int) -> Weights:
    """The weights under the names that Marian and Pegasus share, and `longest` rows of positions."""
    order = torch.cat([torch.arange(0, model.d_model, 2), torch.arange(1, model.d_model, 2)])  # sines, then cosines
    one = model.output.weight is model.source_embedding.weight
    sides = {"encoder": model.source_embedding, "decoder": model.target_embedding}
    embeddings = {f"model.{side}.embed_tokens": each for side, each in sides.items()}
    layers: dict[str, Any] = {"model.shared": model.output} if one else embeddings | {"lm_head": model.output}
    found = {f"{name}.weight": layer.weight[:, order] for name, layer in layers.items()}
    found["final_logits_bias"] = torch.zeros(1, model.output.out_features)
    for side, stack, shape in (("encoder", model.encoder, shapes.encoder), ("decoder", model.decoder, shapes.decoder)):
        for number, layer in enumerate(stack):
            found |= _layer(f"model.{side}.layers.{number}", layer, shape, order)
    for side, own in (("encoder", "source"), ("decoder", "target")):
        positions: Any = model.positions[own]
        found[f"model.{side}.embed_positions.weight"] = positions.reaching(longest)[:longest, order]
    for side, norm in (("encoder", model.encoder_norm), ("decoder", model.decoder_norm)):
        if isinstance(norm, nn.LayerNorm):
            found |= _norm(f"model.{side}.layer_norm", norm, order)
    return found


def _layer(name: str, layer: Any, shape: Shape, order: Tensor) -> Weights:
    parts = {"self_attn": layer.self_attention}
    if hasattr(layer, "cross_attention"):
        parts["encoder_attn"] = layer.cross_attention
    found: Weights = {}
    for part, attention in parts.items():
        *inputs, output = in_shape(attention, shape)
        for letter, each in zip("qkv", inputs, strict=True):
            found |= _linear(f"{name}.{part}.{letter}_proj", Linear(each.weight[:, order], each.bias))
        found |= _linear(f"{name}.{part}.out_proj", _onto(output, order))
    first, last = layer.feed_forward[0], layer.feed_forward[3]
    found |= _linear(f"{name}.fc1", Linear(first.weight[:, order], first.bias))
    found |= _linear(f"{name}.fc2", _onto(last, order))
    norms = [f"{part}_layer_norm" for part in (*parts, "final")]
    for norm, residual in zip(norms, layer.residuals, strict=True):
        found |= _norm(f"{name}.{norm}", residual.norm, order)
    return found


def _onto(linear: Any, order: Tensor) -> Linear:
    """A layer whose output changes places."""
    return Linear(linear.weight[order], linear.bias[order])


def _linear(name: str, linear: Linear) -> Weights:
    assert linear.bias is not None  # only SwiGLU has none
    return {f"{name}.weight": linear.weight, f"{name}.bias": linear.bias}


def _norm(name: str, norm: nn.LayerNorm, order: Tensor) -> Weights:
    return {f"{name}.weight": norm.weight[order], f"{name}.bias": norm.bias[order]}


def _write_tokenizer(run: Run, folder: Path, longest: int) -> None:
    source, target = run.tokenizer.source, run.tokenizer.target
    languages = dict(zip(("source_lang", "target_lang"), run.languages, strict=True))
    separate = source is not target
    source.save(folder / "source.spm")
    target.save(folder / "target.spm")
    _write(folder / "vocab.json", _numbers(source))
    if separate:
        _write(folder / "target_vocab.json", _numbers(target))
    names = {f"{name}_token": source.vocabulary[number] for name, number in (("pad", PAD), ("unk", UNK), ("eos", EOS))}
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "MarianTokenizer",
            "model_max_length": longest,
            "separate_vocabs": separate,
            "clean_up_tokenization_spaces": False,
            "split_special_tokens": True,  # "</s>" in a sentence is text
            **languages,
            **names,
        },
    )


def _numbers(tokenizer: Tokenizer) -> dict[str, int]:
    return {piece: number for number, piece in enumerate(tokenizer.vocabulary)}


def _write(path: Path, content: dict[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
