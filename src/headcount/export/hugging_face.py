"""Hugging Face folders: a Transformer as an architecture that transformers has, with its tokenizer.

With norm "pre" this is Pegasus (Zhang et al. 2020), with "post" Marian (Junczys-Dowmunt et al. 2018). Both have
sinusoids from position 0, all sines first and all cosines after, so the numbers of a state change places.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from headcount.data.tokenizer import BOS, EOS, PAD, UNK
from headcount.export.attention import Shape, common_shape, in_shape
from headcount.export.limits import kinds
from headcount.files import write_bytes, write_text
from headcount.run.opened import Run

ARCHITECTURES = {"pre": ("pegasus", "PegasusForConditionalGeneration"), "post": ("marian", "MarianMTModel")}
SPECIAL = {
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "decoder_start_token_id": BOS,
    "forced_eos_token_id": EOS,
}
SIDES = {"encoder": "source", "decoder": "target"}


def write_model(run: Run, folder: Path, quantization: str, longest: int) -> None:
    """Write the weights, the settings and the tokenizer of a run into a folder.

    quantization: of the weights, a type of torch's. longest: tokens of a sentence that the model has positions for.
    """
    with torch.no_grad():
        found = weights(run.model, longest)
        stored = {name: each.to(getattr(torch, quantization)).contiguous() for name, each in found.items()}
    write_bytes(folder / "model.safetensors", save(stored, {"format": "pt"}))
    _write(folder / "config.json", settings(run.model, quantization, longest))
    search = run.translator.search
    beam = getattr(search, "beam", 1)
    penalty = {"length_penalty": float(getattr(search, "alpha", 1.0))} if beam > 1 else {}  # of length^penalty
    _write(folder / "generation_config.json", {**SPECIAL, "max_length": longest, "num_beams": beam, **penalty})
    _write_tokenizer(run, folder, longest)


def settings(model: Any, quantization: str, longest: int) -> dict[str, Any]:
    """config.json: the architecture and its numbers."""
    kind, name = ARCHITECTURES[kinds(model)["norm"]]
    one = model.output.weight is model.source_embedding.weight
    found = {
        "model_type": kind,
        "architectures": [name],
        "dtype": quantization,
        "d_model": model.d_model,
        "vocab_size": model.source_embedding.num_embeddings,
        "max_position_embeddings": longest,
        "activation_function": kinds(model)["feed_forward"],
        "scale_embedding": model.embedding_scale != 1.0,
        "tie_word_embeddings": one,
        **SPECIAL,
    }
    for side in SIDES:
        layers = getattr(model, side)
        found[f"{side}_layers"] = len(layers)
        found[f"{side}_attention_heads"] = model.d_model // common_shape(layers).size
        found[f"{side}_ffn_dim"] = layers[0].feed_forward[0].out_features
    if kind == "marian":
        found |= {"share_encoder_decoder_embeddings": one, "decoder_vocab_size": model.output.out_features}
    return found


def weights(model: Any, longest: int) -> dict[str, Tensor]:
    """The weights under the names that Marian and Pegasus share, and `longest` rows of positions."""
    order = torch.cat([torch.arange(0, model.d_model, 2), torch.arange(1, model.d_model, 2)])  # sines, then cosines
    found: dict[str, Tensor] = {"final_logits_bias": torch.zeros(1, model.output.out_features)}

    def put(name: str, layer: Any, onto: bool = False) -> None:  # onto: its output is the state, else its input
        found[f"{name}.weight"] = layer.weight[order] if onto else layer.weight[:, order]
        found[f"{name}.bias"] = layer.bias[order] if onto else layer.bias

    one = model.output.weight is model.source_embedding.weight
    found["model.shared.weight" if one else "lm_head.weight"] = model.output.weight[:, order]
    for side, language in SIDES.items():
        layers, stack = getattr(model, side), f"model.{side}"
        size = common_shape(layers).size
        shape = Shape(model.d_model // size, size)
        if not one:
            found[f"{stack}.embed_tokens.weight"] = getattr(model, f"{language}_embedding").weight[:, order]
        found[f"{stack}.embed_positions.weight"] = model.positions[language].reaching(longest)[:longest, order]
        if isinstance(norm := getattr(model, f"{side}_norm"), nn.LayerNorm):
            put(f"{stack}.layer_norm", norm, onto=True)
        for number, layer in enumerate(layers):
            name, parts = f"{stack}.layers.{number}", {"self_attn": layer.self_attention}
            if side == "decoder":
                parts["encoder_attn"] = layer.cross_attention
            for part, attention in parts.items():
                *inputs, output = in_shape(attention, shape)
                for letter, linear in zip("qkv", inputs, strict=True):
                    put(f"{name}.{part}.{letter}_proj", linear)
                put(f"{name}.{part}.out_proj", output, onto=True)
            put(f"{name}.fc1", layer.feed_forward[0])
            put(f"{name}.fc2", layer.feed_forward[3], onto=True)
            for part, residual in zip((*parts, "final"), layer.residuals, strict=True):
                put(f"{name}.{part}_layer_norm", residual.norm, onto=True)
    return found


def _write_tokenizer(run: Run, folder: Path, longest: int) -> None:
    source, target = run.tokenizer.source, run.tokenizer.target
    source.save(folder / "source.spm")
    target.save(folder / "target.spm")
    files = {"vocab.json": source} if source is target else {"vocab.json": source, "target_vocab.json": target}
    for name, tokenizer in files.items():
        _write(folder / name, {subword: number for number, subword in enumerate(tokenizer.vocabulary)})
    special = {f"{name}_token": source.vocabulary[at] for name, at in (("pad", PAD), ("unk", UNK), ("eos", EOS))}
    found = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": run.languages[0],
        "target_lang": run.languages[1],
        "model_max_length": longest,
        "separate_vocabs": source is not target,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,  # "</s>" in a sentence is text
    }
    _write(folder / "tokenizer_config.json", found | special)


def _write(path: Path, content: dict[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
