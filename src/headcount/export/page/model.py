"""A run as JSON for the page: its weights, how the Transformer is put together, and its vocabulary."""

from base64 import b64encode
from typing import Any

import numpy as np
from sentencepiece import sentencepiece_model_pb2
from torch import Tensor, nn

from headcount.data.tokenizer import Tokenizer
from headcount.export.limits import kinds
from headcount.model.attention import ScaledDotProduct
from headcount.model.multi_head import MultiHeadAttention
from headcount.model.positions import Rotation
from headcount.model.transformer import Transformer

BPE = 2  # of sentencepiece's TrainerSpec.model_type


class Tensors:
    """Weights as bytes, little-endian, one after the other; a weight that is shared is kept once.

    form: "float32"; or "int8" for matrices, round(127 w / max |w|) of each row, after max |w| / 127 of all rows.
    """

    def __init__(self, form: str) -> None:
        self.form = form
        self.content = bytearray()
        self.places: list[list[Any]] = []  # offset in bytes, rows, columns, form
        self._numbers: dict[int, int] = {}

    def add(self, tensor: Tensor) -> int:
        """The number of a matrix or vector."""
        if id(tensor) not in self._numbers:
            self._numbers[id(tensor)] = len(self.places)
            values = tensor.detach().float().cpu().numpy()
            form = self.form if values.ndim == 2 else "float32"
            self.places.append([len(self.content), *np.atleast_2d(values).shape, form])
            if form == "int8":
                scales, values = quantised(values)
                self.content += scales.astype("<f4").tobytes()
            self.content += values.astype("i1" if form == "int8" else "<f4").tobytes()
        return self._numbers[id(tensor)]

    def packed(self) -> dict[str, Any]:
        return {"places": self.places, "bytes": b64encode(self.content).decode()}


def quantised(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales [row] and whole numbers -127 to 127 [row, column], whose product is nearly the matrix."""
    scales = np.abs(matrix).max(axis=1, initial=0).astype(np.float32) / np.float32(127)
    scales[scales == 0] = 1
    return scales, np.rint(matrix / scales[:, None]).clip(-127, 127)


def architecture(model: Transformer, tensors: Tensors) -> dict[str, Any]:
    """All that the forward pass depends on; weights are added to `tensors`."""
    kind, positions = kinds(model), dict[str, Any](model.positions.items())
    sides = {
        side: {
            "embedding": tensors.add(embedding.weight),
            "positions": kind["positions"],
            "table": tensors.add(positions[side].table) if kind["positions"] == "learned" else None,
        }
        for side, embedding in (("source", model.source_embedding), ("target", model.target_embedding))
    }
    return {
        "width": model.d_model,
        "norm": kind["norm"],
        "scale": model.embedding_scale,
        **sides,
        "encoder": [_layer(layer, kind, f"encoder{n}", "", tensors) for n, layer in enumerate(model.encoder, 1)],
        "decoder": [
            _layer(layer, kind, f"decoder{n}", f"cross{n}", tensors) for n, layer in enumerate(model.decoder, 1)
        ],
        "encoderNorm": _norm(model.encoder_norm, tensors),
        "decoderNorm": _norm(model.decoder_norm, tensors),
        "output": tensors.add(model.output.weight),
        "cap": model.output.cap,
        "longest": model.max_length,
    }


def _layer(layer: Any, kind: dict[str, str], own: str, cross: str, tensors: Tensors) -> dict[str, Any]:
    part = layer.feed_forward
    gated = {"gate": part.gate, "first": part.up, "last": part.down} if kind["feed_forward"] == "swiglu" else {}
    linear = gated or {"first": part[0], "last": part[3]}
    parts = {
        "self": _attention(layer.self_attention, own, tensors),
        "forward": {"kind": kind["feed_forward"], **{role: _linear(each, tensors) for role, each in linear.items()}},
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


def _linear(layer: nn.Linear, tensors: Tensors) -> list[int | None]:
    return [tensors.add(layer.weight), None if layer.bias is None else tensors.add(layer.bias)]


def _norm(norm: nn.Module, tensors: Tensors) -> list[int] | None:
    return [tensors.add(norm.weight), tensors.add(norm.bias)] if isinstance(norm, nn.LayerNorm) else None


def vocabulary(tokenizer: Tokenizer) -> dict[str, Any]:
    """Pieces and scores in the order of their numbers, and of each its kind, a digit: sentencepiece's type."""
    model: Any = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.content)
    return {
        "type": "bpe" if model.trainer_spec.model_type == BPE else "unigram",
        "pieces": [piece.piece for piece in model.pieces],
        "scores": [_short(piece.score) for piece in model.pieces],
        "kinds": "".join(str(piece.type) for piece in model.pieces),
    }


def _short(score: float) -> float | int:
    """A float32 in as few digits as identify it."""
    return int(score) if score == int(score) else float(str(np.float32(score)))
