"""Attention weights of every head on given translations: as arrays of many sentences, or drawn for one."""

from collections.abc import Callable, Sequence
from pathlib import Path

import altair as alt
import numpy as np
import pandas as pd
import torch

from headcount.data.tokenizer import BOS, EOS
from headcount.errors import InputError
from headcount.heads.analysis import Arrays
from headcount.heads.roles import SIDES
from headcount.report.page import Page, Section, View, write
from headcount.report.views import LETTER, heat_map
from headcount.run.arrays import padded, write_arrays
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


@torch.inference_mode()
def attention_arrays(
    run: Run, sources: Sequence[str], targets: Sequence[str], progress: Callable[[int], None] = lambda done: None
) -> Arrays:
    """Attention weights of a run on these sentences and translations.

    source, target [sentence]: the texts. source_pieces [sentence, source], target_pieces [sentence, target]: the pieces
    as text, "" behind the last; sources end with "</s>", and targets begin with "<s>", since a query of the decoder is
    the token before the one to predict. For each layer, from 1, float32 and zero behind a sentence:
    encoder_1 [sentence, head, source, source], decoder_1 [sentence, head, target, target],
    cross_1 [sentence, head, target, source].
    Raises InputError for a model without attention.
    """
    parts: dict[str, list[np.ndarray]] = {}
    for source, target in zip(sources, targets, strict=True):
        source_ids, target_ids = run.translator.encode([source])[0], run.tokenizer.target.encode([target])[0]
        read = run.tokenizer.source.pieces(source) if source_ids else []
        found = {"source_pieces": np.array([*read, "</s>"])}
        found["target_pieces"] = np.array(["<s>", *run.tokenizer.target.pieces(target)])
        given = torch.tensor([[*source_ids, EOS]], device=run.model.device)
        before = torch.tensor([[BOS, *target_ids]], device=run.model.device)
        weights = run.model.attention_weights(given, torch.ones_like(given, dtype=torch.bool), before)
        for kind in KINDS:
            for number, layer in enumerate(getattr(weights, kind), start=1):
                found[f"{kind}_{number}"] = layer[0].float().cpu().numpy()
        for name, array in found.items():
            parts.setdefault(name, []).append(array)
        progress(1)
    if len(parts) == 2:  # the pieces
        raise InputError(f"run={run.directory}: its model has no attention, so there is nothing to draw")
    return {"source": np.array(sources), "target": np.array(targets)} | {n: padded(each) for n, each in parts.items()}


def write_weights(
    run: Run, sources: Sequence[str], targets: Sequence[str], out: Path, progress: Callable[[int], None]
) -> Path:
    """Write the arrays into a .npz file, and return it."""
    write_arrays(out, attention_arrays(run, sources, targets, progress))
    return out


def weights_of(arrays: Arrays, layer: str) -> pd.DataFrame:
    """The weights of a layer, such as cross_1, on the first sentence: columns head (from 1), query, key, weight. Tokens
    that look the same have different numbers of spaces without width, so that none of them is another."""
    sides = []
    for side in SIDES[layer.partition("_")[0]]:
        tokens = [piece for piece in arrays[f"{side}_pieces"][0].tolist() if piece]
        sides.append([token + "\u200b" * tokens[:place].count(token) for place, token in enumerate(tokens)])
    weights = arrays[layer][0, :, : len(sides[0]), : len(sides[1])].astype(float)
    lines = pd.MultiIndex.from_product([range(1, len(weights) + 1), *sides], names=["head", "query", "key"])
    return pd.DataFrame({"weight": weights.ravel()}, index=lines).reset_index()


def layer_view(arrays: Arrays, layer: str) -> View:
    """A map for each head of a layer, side by side."""
    kind, _, number = layer.partition("_")
    table = weights_of(arrays, layer)
    maps = [
        heat_map(own, x="key", y="query", value="weight").properties(title=f"head {head}")
        for head, own in table.groupby("head")
    ]
    wide = CELL * table["key"].nunique() + LETTER * table["query"].str.len().max() + 60
    chart = alt.concat(*maps, columns=max(1, int(ACROSS / wide))).resolve_scale(color="shared")
    return View(layer, f"{KINDS[kind][0]}, layer {number}", chart)


def draw(
    run: Run, sources: Sequence[str], targets: Sequence[str], output: Path, progress: Callable[[int], None]
) -> Path:
    """Write attention.html, attention.md, and each layer as SVG, to `output`, of a single sentence and its translation;
    returns the HTML file. Raises InputError for more tokens than can be drawn."""
    arrays = attention_arrays(run, sources, targets, progress)
    labels = max(each.shape[1] * sum(each.shape[2:]) for each in arrays.values() if each.ndim == 4)
    if labels > MOST_LABELS:
        raise InputError(
            f"text=: the heads of a layer have {labels:,} tokens at their sides, and {MOST_LABELS:,} can be drawn; "
            "give a shorter sentence, or attention=FILE.npz for the weights as arrays"
        )
    sections = []
    for kind, (title, note) in KINDS.items():
        layers = [name for name in arrays if name.startswith(f"{kind}_")]
        below = [Section(f"Layer {number}", (layer_view(arrays, name),)) for number, name in enumerate(layers, 1)]
        sections += [Section(title, (note, *below))] if below else []
    about = f"{run.languages[0]} to {run.languages[1]}. {NOTE}"
    return write(Page(sources[0], targets[0], about, sections=tuple(sections)), output, "attention")
