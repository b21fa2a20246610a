"""The page of a run: one HTML file with its weights, its tokenizer and the forward pass in JavaScript."""

import json
from base64 import b64encode
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import jinja2
import numpy as np
from datasets import Dataset
from sentencepiece import sentencepiece_model_pb2
from torch import Tensor, nn

from headcount.data.tokenizer import Tokenizer
from headcount.errors import InputError
from headcount.evaluation.contrastive import read_all_contrasts
from headcount.export.limits import kinds
from headcount.heads.ablation import effects, without_each
from headcount.heads.evaluation_set import evaluation_set
from headcount.heads.interface import Heads
from headcount.model.attention import ScaledDotProduct
from headcount.model.multi_head import MultiHeadAttention
from headcount.model.positions import Rotation
from headcount.model.transformer import Transformer
from headcount.run.opened import Run
from headcount.run.written import parameters

SCRIPTS = ("tokenizer.js", "model.js", "page.js")
COLUMNS = ("source", "target", "phenomenon", "contrast")
CANDIDATES = 60  # shortest sentences of a phenomenon, among which examples that one head decides are looked for


def page(run: Run, weights: str, examples: int, contrasts: str | list[str] | None = None) -> str:
    """The page of a run. weights: "int8" or "float32". examples: sentences of each phenomenon from the test set, and
    from files of contrastive pairs."""
    pairs = read_all_contrasts(contrasts or [])
    return rendered(content(run, weights, example_sentences(run, examples, pairs) if examples else []))


def rendered(data: Mapping[str, Any]) -> str:
    """The page. Nothing of `data` can become markup or script: it is JSON without a `<`, or escaped."""
    folder = files("headcount.export.page")
    script, style, html = (
        "\n".join((folder / name).read_text(encoding="utf-8") for name in names)
        for names in (SCRIPTS, ["page.css"], ["page.html"])
    )
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return jinja2.Template(html, autoescape=True).render(run=data, data=text, script=script, style=style)


def content(run: Run, weights: str, examples: list[dict[str, str]]) -> dict[str, Any]:
    """All that the page reads, for JSON."""
    model: Any = run.model
    tensors, search, pair = Tensors(weights), run.translator.search, run.tokenizer
    positions = [] if model.max_length is None else [model.max_length - 1]  # without the end of sentence
    longest = positions if search.max_source is None else [*positions, search.max_source]
    return {
        "name": run.directory.resolve().name,
        "languages": run.languages,
        "parameters": parameters(model),
        "weights": weights,
        "model": architecture(model, tensors),
        "tensors": tensors.packed,
        "tokenizers": [vocabulary(each) for each in dict.fromkeys([pair.source, pair.target])],
        "search": {
            "ratio": search.max_ratio,
            "extra": search.max_extra,
            "source": min(longest, default=None),
            "target": min(positions, default=None),
        },
        "examples": examples,
    }


def example_sentences(run: Run, each: int, pairs: Mapping[str, Dataset]) -> list[dict[str, str]]:
    """Sentences of the test set, and of files of contrastive pairs, with their translations, see `chosen_sentences`."""
    try:
        rows = run.data().data["test"]
    except InputError as error:
        raise InputError(f"{error}; or set examples=0 for a page without examples") from error
    return [sentence for table in (rows, *pairs.values()) for sentence in chosen_sentences(run, table, each)]


def chosen_sentences(run: Run, rows: Dataset, each: int) -> list[dict[str, str]]:
    """At most `each` rows of each phenomenon, or of all without phenomena: those that one head decides, see `decided`,
    with the name of that head, the phenomenon with the clearest one first; where no head does, others evenly spread."""
    columns = [name for name in COLUMNS if name in rows.features]
    labels = np.array(rows["phenomenon"] if "phenomenon" in columns else [""] * len(rows))
    by_length = np.argsort([len(text) for text in rows["source"]], kind="stable")
    groups: list[tuple[float, list[dict[str, str]]]] = []
    for name in np.unique(labels):
        group = np.flatnonzero(labels == name)
        short = by_length[labels[by_length] == name][:CANDIDATES]
        heads = decided(run, rows, short)[:each] if "contrast" in columns else []
        spread = [(row, "", 0.0) for row in group[:: len(group) // each or 1][:each].tolist()]
        chosen = heads or spread
        texts = [{column: str(rows[row][column]) for column in columns} for row, _, _ in chosen]
        named = [text | ({"head": head} if head else {}) for text, (_, head, _) in zip(texts, chosen, strict=True)]
        groups.append((chosen[0][2], named))
    return [text for _, named in sorted(groups, key=lambda group: -group[0]) for text in named]


def decided(run: Run, rows: Dataset, numbers: np.ndarray) -> list[tuple[int, str, float]]:
    """Of these rows, those whose right translation the model prefers, and without a single head the wrong one: the row,
    the head, and the smaller of both differences of log-probability in nats, by which the clearest is first."""
    test, heads = evaluation_set(run, rows.select(numbers)), Heads(run.model)
    found = effects(heads, test, without_each(heads))
    whole, *without = found["right"] - found["wrong"]
    clear = np.minimum(whole, -np.array(without))
    best = clear.max(axis=0, initial=0)
    order = [pair for pair in np.argsort(-best, kind="stable") if best[pair] > 0]
    tested = numbers[test.tested]
    return [(int(tested[pair]), str(heads.names[clear[:, pair].argmax()]), float(best[pair])) for pair in order]


class Tensors:
    """Weights in base64, little-endian; a weight that is shared is kept once.

    form: "float32", or "int8" for matrices: round(127 w / max |w|) of each row, with max |w| / 127 of each as scales.
    """

    def __init__(self, form: str) -> None:
        self.form = form
        self.packed: list[dict[str, Any]] = []
        self._numbers: dict[int, int] = {}

    def add(self, tensor: Tensor) -> int:
        """The number of a matrix or vector."""
        if id(tensor) not in self._numbers:
            self._numbers[id(tensor)] = len(self.packed)
            values = np.atleast_2d(tensor.detach().float().cpu().numpy())
            rows, columns = values.shape
            found: dict[str, Any] = {"rows": rows, "columns": columns}
            if self.form == "int8" and tensor.dim() == 2:
                scales, values = quantised(values)
                found["scales"] = _base64(scales)
            self.packed.append(found | {"data": _base64(values)})
        return self._numbers[id(tensor)]


def _base64(values: np.ndarray) -> str:
    return b64encode(values.astype(values.dtype.newbyteorder("<")).tobytes()).decode()


def quantised(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales [row] and whole numbers -127 to 127 [row, column] in int8, whose product is nearly the matrix."""
    scales = np.abs(matrix).max(axis=1, initial=0).astype(np.float32) / np.float32(127)
    scales[scales == 0] = 1
    return scales, np.rint(matrix / scales[:, None]).clip(-127, 127).astype(np.int8)


def architecture(model: Transformer, tensors: Tensors) -> dict[str, Any]:
    """All that the forward pass depends on; weights are added to `tensors`."""
    kind, positions = kinds(model), dict[str, Any](model.positions.items())
    return {
        "width": model.d_model,
        "norm": kind["norm"],
        "scale": model.embedding_scale,
        "positions": kind["positions"],
        "tables": {side: tensors.add(each.table) for side, each in positions.items() if kind["positions"] == "learned"},
        "embeddings": {
            "source": tensors.add(model.source_embedding.weight),
            "target": tensors.add(model.target_embedding.weight),
        },
        "encoder": [_layer(layer, n, tensors) for n, layer in enumerate(model.encoder, 1)],
        "decoder": [_layer(layer, n, tensors) for n, layer in enumerate(model.decoder, 1)],
        "encoderNorm": _numbers(model.encoder_norm, tensors),
        "decoderNorm": _numbers(model.decoder_norm, tensors),
        "activation": kind["feed_forward"],
        "output": tensors.add(model.output.weight),
    }


def _layer(layer: Any, number: int, tensors: Tensors) -> dict[str, Any]:
    part, decoder = layer.feed_forward, hasattr(layer, "cross_attention")
    gated = hasattr(part, "gate")
    linear = {"gate": part.gate, "first": part.up, "last": part.down} if gated else {"first": part[0], "last": part[3]}
    found = {
        "self": _attention(layer.self_attention, f"{'decoder' if decoder else 'encoder'}{number}", tensors),
        "forward": {role: _numbers(each, tensors) for role, each in linear.items()},
        "norms": [_numbers(residual.norm, tensors) for residual in layer.residuals],
    }
    return found | ({"cross": _attention(layer.cross_attention, f"cross{number}", tensors)} if decoder else {})


def _attention(part: MultiHeadAttention, name: str, tensors: Tensors) -> dict[str, Any]:
    plan = part.heads
    return {
        "name": name,
        "heads": plan.count,
        "size": plan.size,
        "shared": plan.count // plan.kv if plan.kv else 1,
        "scale": plan.size**-0.5 if part.kind is ScaledDotProduct else 1.0,
        "rotary": isinstance(part.rotate, Rotation),
        **{role: _numbers(getattr(part, role), tensors) for role in ("query", "key", "value", "output")},
    }


def _numbers(layer: nn.Module, tensors: Tensors) -> list[int | None]:
    """Of its weight and bias; None for what it lacks."""
    found = [getattr(layer, name, None) for name in ("weight", "bias")]
    return [None if each is None else tensors.add(each) for each in found]


def vocabulary(tokenizer: Tokenizer) -> dict[str, Any]:
    """Pieces and scores in the order of their numbers, and of each its kind, a digit: sentencepiece's type."""
    model: Any = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.content)
    return {
        "type": "bpe" if model.trainer_spec.model_type == model.trainer_spec.BPE else "unigram",
        "pieces": [piece.piece for piece in model.pieces],
        "scores": [float(str(np.float32(piece.score))) for piece in model.pieces],  # in as few digits as identify it
        "kinds": "".join(str(piece.type) for piece in model.pieces),
    }
