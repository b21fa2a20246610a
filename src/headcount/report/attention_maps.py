"""Attention maps: the attention weights of every head while a sentence is translated."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import altair as alt
import pandas as pd
import torch
from torch import Tensor

from headcount.data.tokenizer import BOS, EOS
from headcount.errors import InputError, reason
from headcount.report.page import Page, Section, View, write
from headcount.report.views import LETTER, heat_map
from headcount.run.opened import Run

KINDS = {
    "cross": ("Cross-attention", "From each target token, down, to the source, across."),
    "encoder": ("Encoder self-attention", "From each source token to the source."),
    "decoder": ("Decoder self-attention", "From each target token to the target so far."),
}
MOST_LABELS = 2000  # of a drawing: more take minutes and gigabytes, and nobody can read them
ACROSS = 800  # pixels of heads in a line
CELL = 20  # pixels of a token
NOTE = "A row of a map has the attention weights of one token, over the tokens above the map: the darker, the larger."


@dataclass(frozen=True)
class Layer:
    """The heads of one layer. weights: [head, query, key]. queries, keys: the tokens."""

    kind: str
    number: int
    weights: Tensor
    queries: Sequence[str]
    keys: Sequence[str]

    @property
    def name(self) -> str:
        return f"{self.kind}_{self.number}"


@dataclass(frozen=True)
class AttentionMaps:
    """A sentence, its translation, and the attention weights of every layer."""

    source: str
    target: str
    layers: Sequence[Layer]


@torch.inference_mode()
def attention_maps(run: Run, text: str, target: str | None = None) -> AttentionMaps:
    """Attention weights of a run while it translates `text` to `target`, to its own translation if None.

    Raises InputError for a model without attention.
    """
    translation = run.translator.translate([text])[0] if target is None else target
    source_ids, target_ids = run.translator.encode([text])[0], run.tokenizer.target.encode([translation])[0]
    source = [*run.tokenizer.source.pieces(text), "</s>"] if source_ids else ["</s>"]
    # A query of the decoder is the token before the one to predict.
    written = ["<s>", *run.tokenizer.target.pieces(translation)]
    given = torch.tensor([[*source_ids, EOS]], device=run.model.device)
    before = torch.tensor([[BOS, *target_ids]], device=run.model.device)
    attention = run.model.attention_weights(given, torch.ones_like(given, dtype=torch.bool), before)
    sides = {"cross": (written, source), "encoder": (source, source), "decoder": (written, written)}
    layers = [
        Layer(kind, number, weights[0].float().cpu(), *sides[kind])
        for kind in KINDS
        for number, weights in enumerate(getattr(attention, kind), start=1)
    ]
    if not layers:
        raise InputError(f"run={run.directory}: its model has no attention, so there is nothing to draw")
    return AttentionMaps(text, translation, layers)


def view(layer: Layer) -> View:
    """A map for each head, side by side."""
    queries, keys = _apart(layer.queries), _apart(layer.keys)
    maps = [
        heat_map(
            pd.DataFrame(
                [(query, key, weight) for query, row in zip(queries, head, strict=True)
                 for key, weight in zip(keys, row, strict=True)],
                columns=["query", "key", "weight"],
            ), x="key", y="query", value="weight",
        ).properties(title=f"head {number}")
        for number, head in enumerate(layer.weights.tolist(), start=1)
    ]  # fmt: skip
    wide = CELL * len(keys) + LETTER * max(map(len, queries)) + 60
    columns = max(1, int(ACROSS / wide))
    chart = alt.concat(*maps, columns=columns).resolve_scale(color="shared")
    return View(layer.name, f"{KINDS[layer.kind][0]}, layer {layer.number}", chart)


def _apart(tokens: Sequence[str]) -> list[str]:
    """Tokens that look the same, and none of which is another: each has its own number of spaces without width."""
    return [token + "\u200b" * tokens[:place].count(token) for place, token in enumerate(tokens)]


def draw(run: Run, text: str, target: str | None, output: Path) -> Path:
    """Write attention.html, attention.md, and each layer as SVG, to `output`; returns the HTML file.

    Raises InputError for more tokens than can be drawn, and for a directory that cannot be written.
    """
    maps = attention_maps(run, text, target)
    labels = max(len(layer.weights) * (len(layer.queries) + len(layer.keys)) for layer in maps.layers)
    if labels > MOST_LABELS:
        raise InputError(
            f"text=: the heads of a layer have {labels:,} tokens at their sides, and {MOST_LABELS:,} can be drawn; "
            "give a shorter sentence, or attention=FILE.npz for the weights as arrays"
        )
    sections = []
    for kind, (title, note) in KINDS.items():
        if views := [view(layer) for layer in maps.layers if layer.kind == kind]:
            sections.append(
                Section(title, (note, *(Section(f"Layer {n}", (each,)) for n, each in enumerate(views, 1))))
            )
    about = f"{run.languages[0]} to {run.languages[1]}. {NOTE}"
    try:
        return write(Page(maps.source, maps.target, about, sections=tuple(sections)), output, "attention")
    except OSError as error:
        raise InputError(f"attention={output}: can't be written to ({reason(error)}); name another") from error
