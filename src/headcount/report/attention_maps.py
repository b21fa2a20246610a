"""Attention maps: the attention weights of every head while a sentence is translated."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from torch import Tensor

from headcount.data.tokenizer import BOS, EOS
from headcount.errors import InputError, reason
from headcount.files import write_text
from headcount.model.attention_kinds import GaussianWindow, Mixture
from headcount.report import drawing
from headcount.report.drawing import INK
from headcount.report.plot import Plot
from headcount.run.opened import Run

KINDS = {
    "cross": ("cross-attention", "From each target token, down, to the source, across."),
    "encoder": ("encoder self-attention", "From each source token to the source."),
    "decoder": ("decoder self-attention", "From each target token to the target so far."),
}
# From transparent to a blue that is visible on light and dark pages.
WEIGHT = LinearSegmentedColormap.from_list("weight", [(0.23, 0.51, 0.77, 0.0), (0.23, 0.51, 0.77, 1.0)])
CENTRE = "#e0762f"
CELL, LEAST = 0.17, 1.6  # inches: a token, and the least width of a head
MOST_LABELS = 2000  # of a drawing: more take minutes and gigabytes, and nobody can read them
PAGE = 8.0  # inches of heads in a line: text stays readable on a page 800 pixels wide


@dataclass(frozen=True)
class Layer:
    """The heads of one layer.

    weights: [head, query, key]. queries, keys: the tokens. windows: the Gaussians of a sliding window, each
    [head, query, gaussian].
    """

    kind: str
    number: int
    weights: Tensor
    queries: Sequence[str]
    keys: Sequence[str]
    windows: Mixture | None = None

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
    with _windows(run) as windows:
        attention = run.model.attention_weights(given, torch.ones_like(given, dtype=torch.bool), before)
    sides = {"cross": (written, source), "encoder": (source, source), "decoder": (written, written)}
    sliding = windows()
    layers = [
        Layer(kind, number, weights[0].float().cpu(), *sides[kind], sliding.get((kind, number)))
        for kind in KINDS
        for number, weights in enumerate(getattr(attention, kind), start=1)
    ]
    if not layers:
        raise InputError(f"run={run.directory}: its model has no attention, so there is nothing to draw")
    return AttentionMaps(text, translation, layers)


@contextmanager
def _windows(run: Run) -> Iterator[Callable[[], dict[tuple[str, int], Mixture]]]:
    """Records the Gaussian windows of a model while it runs, by kind of attention and number of the layer."""
    named = [(name, part) for name, part in run.model.named_modules() if isinstance(part, GaussianWindow)]
    recorded: dict[GaussianWindow, list[Mixture]] = {part: [] for _, part in named}

    def record(window: GaussianWindow, arguments: tuple[Any, ...]) -> None:
        query, _, _, _, _, state, _ = arguments
        recorded[window].append(window.mixture(query, state))

    def layer(name: str) -> tuple[str, int]:
        side, number = [*name.split("."), ""][:2]  # such as decoder.0.self_attention.attend, or attention.attend
        kind = side if ".self_attention." in name else "cross"
        return kind, int(number) + 1 if number.isdigit() else 1

    hooks = [window.register_forward_pre_hook(record) for window in recorded]
    try:
        # A recurrent decoder calls its window once a step.
        yield lambda: {
            layer(name): Mixture(
                *(torch.cat(parts, dim=2)[0].float().cpu() for parts in zip(*recorded[part], strict=True))
            )
            for name, part in named
        }
    finally:
        for hook in hooks:
            hook.remove()


def plot(layer: Layer) -> Plot:
    """A map for each head, side by side."""
    heads = len(layer.weights)
    wide, high = (max(LEAST, CELL * len(tokens)) for tokens in (layer.keys, layer.queries))
    across = min(heads, max(1, int(PAGE / (wide + 0.9))))
    down = -(-heads // across)

    def draw(figure: Figure) -> None:
        for head, axes in enumerate(figure.subplots(down, across, squeeze=False).flat):
            if head < heads:
                _map(axes, layer, head)
            else:
                axes.set_axis_off()

    title = f"{KINDS[layer.kind][0]}, layer {layer.number}"
    return drawing.drawn(layer.name, title, draw, (across * (wide + 0.9), down * (high + 0.9)))


def _map(axes: Axes, layer: Layer, head: int) -> None:
    weights = layer.weights[head]
    axes.imshow(
        weights.numpy(), cmap=WEIGHT, vmin=0, vmax=max(1.0, float(weights.max())), interpolation="none", aspect="auto"
    )
    if layer.windows:
        heights, widths, centres = (part[head] for part in layer.windows)
        masses = heights / widths.sqrt()
        axes.autoscale(enable=False)  # a window may move beyond the source
        for gaussian in range(centres.shape[1]):
            across, down = centres[:, gaussian] - 1, range(len(centres))  # centres count tokens from 1, the map from 0
            axes.plot(across, down, color=CENTRE, linewidth=0.9)
            axes.scatter(across, down, 20 * (masses[:, gaussian] / masses.sum(dim=1)), color=CENTRE, zorder=3)
    axes.grid(visible=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)
    for spine in axes.spines.values():
        spine.set_alpha(0.3)
    axes.set_xticks(range(len(layer.keys)), layer.keys, rotation=90, fontsize=7)
    axes.set_yticks(range(len(layer.queries)), layer.queries, fontsize=7)
    axes.tick_params(length=0)
    axes.set_title(f"head {head + 1}", color=INK, fontsize=8)


def draw(run: Run, text: str, target: str | None, output: Path) -> Path:
    """Write attention.html, and each layer as SVG, to the directory `output`; returns the HTML file.

    Raises InputError for more tokens than can be drawn, and for a directory that cannot be written.
    """
    maps = attention_maps(run, text, target)
    labels = max(len(layer.weights) * (len(layer.queries) + len(layer.keys)) for layer in maps.layers)
    if labels > MOST_LABELS:
        raise InputError(
            f"text=: the heads of a layer have {labels:,} tokens at their sides, and {MOST_LABELS:,} can be drawn; "
            "give a shorter sentence, or attention=FILE.npz for the weights as arrays"
        )
    plots = {kind: [plot(layer) for layer in maps.layers if layer.kind == kind] for kind in KINDS}
    try:
        output.mkdir(parents=True, exist_ok=True)
        for made in (each for kind in plots.values() for each in kind):
            made.write(output)
        environment = Environment(loader=PackageLoader(__package__, "."), autoescape=True, undefined=StrictUndefined)
        template = environment.get_template("attention_maps.html.jinja")
        write_text(output / "attention.html", template.render(maps=maps, plots=plots, kinds=KINDS, run=run) + "\n")
    except OSError as error:
        raise InputError(f"attention={output}: can't be written to ({reason(error)}); name another") from error
    return output / "attention.html"
