"""Checkpoints of fairseq's `transformer`: Ott et al. 2019, "fairseq: a fast, extensible toolkit for sequence modeling".

Post-norm or pre-norm, sinusoidal or learned positions, ReLU or GELU. The target of fairseq begins with the end of a
sentence, its dictionary has special symbols at other numbers, and its sinusoids are not those of the paper; so rows of
the embeddings are put in our order, and the sinusoids become learned positions. Log-probabilities are the same.
"""

import argparse
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from sentencepiece import sentencepiece_model_pb2 as sentencepiece_model
from torch import Tensor

from headcount.data.corpora.text import read_lines
from headcount.data.tokenizer import BOS, EOS, PAD, SPACE_MARK, UNK, Tokenizer, TokenizerPair
from headcount.errors import InputError

# Numbers in a dictionary of fairseq.
THEIR_BOS, THEIR_PAD, THEIR_EOS, THEIR_UNK = range(4)
SPECIAL = 4
MULTIPLE = 8  # a dictionary is filled up to a multiple of it
FIRST = THEIR_PAD + 1  # the first position of a sentence
NAMES = {
    r"(en|de)coder\.layers\.(\d+)\.": r"\1coder.\2.",
    r"self_attn\.": "self_attention.",
    r"encoder_attn\.": "cross_attention.",
    r"\.q_proj\.": ".query.",
    r"\.k_proj\.": ".key.",
    r"\.v_proj\.": ".value.",
    r"\.out_proj\.": ".output.",
    r"\.fc1\.": ".feed_forward.0.",
    r"\.fc2\.": ".feed_forward.3.",
    r"\.self_attn_layer_norm\.": ".residuals.0.norm.",
    r"\.encoder_attn_layer_norm\.": ".residuals.1.norm.",
    r"^encoder\.(\d+)\.final_layer_norm\.": r"encoder.\1.residuals.1.norm.",
    r"^decoder\.(\d+)\.final_layer_norm\.": r"decoder.\1.residuals.2.norm.",
    r"^(en|de)coder\.layer_norm\.": r"\1coder_norm.",
    r"^decoder\.(output_projection\.weight|embed_out)$": "output.weight",
}  # in this order
UNLIKE = {
    "layernorm_embedding": "a norm of the embeddings",
    "adaptive_softmax_cutoff": "an adaptive softmax",
    "no_token_positional_embeddings": "no positions",
    "no_cross_attention": "no cross-attention",
    "cross_self_attention": "joint self- and cross-attention",
}


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The settings of the model and its weights. Raises InputError for what is no checkpoint of fairseq's
    `transformer`."""
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):
            state = torch.load(path, "cpu", weights_only=True)
        given = state.get("args") or state["cfg"]["model"]
        return dict(vars(given) if isinstance(given, argparse.Namespace) else given), dict(state["model"])
    except FileNotFoundError:
        raise InputError(f"checkpoint={path}: there is no such file") from None
    except Exception as error:  # of many classes, where bytes are not what they claim to be
        raise InputError(f"checkpoint={path}: no checkpoint of fairseq can be read from it") from error


def model_settings(args: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The group `model` of a config. Raises InputError for a model that ours cannot be."""
    if lacks := [what for name, what in UNLIKE.items() if args.get(name)]:
        raise InputError(f"checkpoint={path}: has {lacks[0]}, which headcount's model has not")
    sides = ("encoder", "decoder")
    alike = {name: {args[f"{side}_{name}"] for side in sides} for name in ("embed_dim", "ffn_embed_dim")}
    alike["normalize_before"] = {bool(args.get(f"{side}_normalize_before")) for side in sides}
    if unlike := [name for name, values in alike.items() if len(values) > 1]:
        raise InputError(f"checkpoint={path}: its encoder and decoder have another {unlike[0]}")
    activation = args.get("activation_fn", "relu")
    if activation not in ("relu", "gelu"):
        raise InputError(f"checkpoint={path}: activation_fn={activation}; must be relu or gelu")
    return {
        "d_model": args["encoder_embed_dim"],
        "d_feed_forward": args["encoder_ffn_embed_dim"],
        "encoder_layers": args["encoder_layers"],
        "decoder_layers": args["decoder_layers"],
        "num_heads": args["encoder_attention_heads"],
        "decoder_heads": args["decoder_attention_heads"],
        "cross_heads": args["decoder_attention_heads"],
        "norm": "pre" if args.get("encoder_normalize_before") else "post",
        "positions": "learned",
        "max_positions": min(args["max_source_positions"], args["max_target_positions"]),
        "feed_forward": activation,
        "tied_embeddings": False,
        "embedding_scale": 1.0 if args.get("no_scale_embedding") else None,
        **{name: args.get(name, 0.0) for name in ("dropout", "attention_dropout", "activation_dropout")},
    }


def model_weights(theirs: Mapping[str, Tensor], positions: int, sizes: tuple[int, int]) -> dict[str, Tensor]:
    """The weights by our names. positions: rows of a table of positions. sizes: of the source and target vocabulary.
    Raises InputError for rows of an embedding that do not fit the dictionary."""
    d_model = theirs["encoder.embed_tokens.weight"].shape[1]
    tables = {
        f"positions.{ours}.table": theirs[name][FIRST : FIRST + positions]
        if (name := f"{side}.embed_positions.weight") in theirs
        else sinusoids(positions, d_model)
        for side, ours in (("encoder", "source"), ("decoder", "target"))
    }
    found = {"source_embedding.weight": theirs["encoder.embed_tokens.weight"]}
    found["target_embedding.weight"] = theirs["decoder.embed_tokens.weight"]
    for name, weight in theirs.items():
        if not re.search(r"\.(version|_float_tensor|embed_tokens\.weight|embed_positions\.weight)$", name):
            for pattern, ours in NAMES.items():
                name = re.sub(pattern, ours, name)
            found[name] = weight
    found.setdefault("output.weight", found["target_embedding.weight"])  # shared
    for name, size in zip(("source_embedding", "target_embedding", "output"), (*sizes, sizes[1]), strict=True):
        rows = found[f"{name}.weight"]
        if len(rows) != size:
            raise InputError(f"dictionaries: give {size} symbols where the checkpoint has {len(rows)} ({name})")
        # The output keeps the row of their beginning, since it has a share of every softmax.
        begin = THEIR_BOS if name == "output" else THEIR_EOS
        order = {PAD: THEIR_PAD, UNK: THEIR_UNK, BOS: begin, EOS: THEIR_EOS}
        found[f"{name}.weight"] = rows[[*(order[number] for number in range(SPECIAL)), *range(SPECIAL, size)]]
    return {name: weight.float() for name, weight in (found | tables).items()}


def sinusoids(positions: int, d_model: int) -> Tensor:
    """fairseq's positions [position, d_model]: sin(pos f_i) for all i, then cos(pos f_i), with f_i = 10000^(-i / (d / 2
    - 1)); the first position is 2."""
    half = d_model // 2
    frequencies = torch.exp(torch.arange(half) * -(math.log(10000) / (half - 1)))
    angles = torch.arange(FIRST, FIRST + positions)[:, None] * frequencies
    table = torch.cat([angles.sin(), angles.cos()], dim=1)
    return torch.nn.functional.pad(table, (0, d_model % 2))


def read_dictionaries(paths: Sequence[str | Path]) -> TokenizerPair:
    """A tokenizer of the symbols of two dict.LANGUAGE.txt, source and target. Raises InputError with the line."""
    return TokenizerPair(*(symbol_tokenizer(_symbols(path)) for path in paths))


def _symbols(path: str | Path) -> list[str]:
    symbols: dict[str, None] = {}
    for number, line in enumerate(read_lines(path), start=1):
        symbol, _, count = line.removesuffix(" #fairseq:overwrite").rpartition(" ")
        if not symbol or not count.isdecimal():
            raise InputError(f"{path}, line {number}: must be a symbol, a space and its count, as fairseq writes it")
        if symbol in symbols:
            raise InputError(f"{path}, line {number}: {symbol} is there twice")
        symbols[symbol] = None
    missing = -(len(symbols) + SPECIAL) % MULTIPLE
    filled = [f"madeupword{number:04d}" for number in range(missing)]
    return [*dict.fromkeys([*symbols, *filled])]


def symbol_tokenizer(symbols: Sequence[str]) -> Tokenizer:
    """A sentencepiece model of symbols between spaces; all others are unknown."""
    model = sentencepiece_model.ModelProto()
    kind = sentencepiece_model.ModelProto.SentencePiece
    for piece in ("<pad>", "<unk>", "<s>", "</s>"):
        model.pieces.add(piece=piece, score=0.0, type=kind.UNKNOWN if piece == "<unk>" else kind.CONTROL)
    for number, symbol in enumerate(symbols):
        model.pieces.add(piece=SPACE_MARK + symbol, score=-float(number), type=kind.NORMAL)
    model.trainer_spec.model_type = sentencepiece_model.TrainerSpec.WORD
    ids = {"pad_id": PAD, "unk_id": UNK, "bos_id": BOS, "eos_id": EOS, "vocab_size": len(model.pieces)}
    for name, number in ids.items():
        setattr(model.trainer_spec, name, number)
    model.trainer_spec.pad_piece = "<pad>"
    model.normalizer_spec.name = "identity"
    return Tokenizer(model.SerializeToString())
