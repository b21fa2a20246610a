"""Pruning: a physically smaller run without some of its heads, whose output is that of the run with these heads masked.

The rows and columns of a cut head leave the projections. The output projection keeps its bias, so a layer without heads
adds that alone.
"""

import statistics
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headcount.decoding.translator import Translator
from headcount.errors import InputError
from headcount.heads.interface import Head, Heads, Layer
from headcount.model.multi_head import MultiHeadAttention
from headcount.run.build import build_model
from headcount.run.opened import Run, fill, make_translator
from headcount.training.averaging import own_weights

Kept = Mapping[Layer, Sequence[int]]
"""The heads of each layer that stay, counted from 0."""


def pruned(run: Run, cut: Collection[Head | str | int], directory: Path, provenance: Mapping[str, Any]) -> Run:
    """The run without the heads of `cut`, as a run of `directory`, to which nothing is written.

    Its config has head counts by layer, and `pruned` with the provenance and the heads. Raises InputError for a head
    that the model does not have, and for what stays where no settings of the model describe it.
    """
    heads = Heads(run.model)
    numbers = {heads.number(head) for head in cut}
    kept = {
        layer: [
            place
            for place, number in enumerate(range(*heads.columns(layer).indices(len(heads))))
            if number not in numbers
        ]
        for layer in heads.layers
    }
    config = run.config.copy()
    config.model.update(settings(heads, kept))
    names = [str(head) for head in heads.names]
    config.pruned = {
        **provenance,
        "run": str(run.directory),
        "kept": [name for number, name in enumerate(names) if number not in numbers],
        "cut": [name for number, name in enumerate(names) if number in numbers],
    }
    model = build_model(config, run.tokenizer)
    fill(model, weights(heads, kept))
    model.to(run.model.device, run.model.output.weight.dtype).eval()
    way = run.translator
    translator = make_translator(model, run.tokenizer, way.search, way.hide_source, str(directory))
    return replace(run, directory=directory, config=config, model=model, translator=translator)


def settings(heads: Heads, kept: Kept) -> dict[str, Any]:
    """The settings of a model with the heads of `kept`. Raises InputError where the heads that stay have several sizes,
    or self-attentions keep different numbers of local heads, which have one setting for all layers."""
    if not any(kept.values()):
        raise InputError("no head is left; keep one or more")
    sizes = sorted({module.heads.size for layer, module in heads.layers.items() if kept[layer]})
    if len(sizes) > 1:
        raise InputError(
            f"heads of sizes {' and '.join(map(str, sizes))} stay, but model.head_size is one for all layers"
        )
    local = {
        sum(head < module.heads.local for head in kept[layer])
        for layer, module in heads.layers.items()
        if layer.kind != "cross"
    }
    if len(local) > 1:
        raise InputError(
            f"model.local_heads: {' and '.join(map(str, sorted(local)))} local heads of a layer stay; keep as many of "
            "each self-attention"
        )
    counts = {
        f"{kind}_heads": [len(kept[layer]) for layer in heads.layers if layer.kind == kind]
        for kind in ("encoder", "decoder", "cross")
    }
    return {**counts, "head_size": sizes[0], "kv_heads": kv_heads(heads, kept), "local_heads": max(local)}


def kv_heads(heads: Heads, kept: Kept) -> int | None:
    """The heads of keys and values of the model that is left, if one number does for all layers: as many groups with as
    many heads in each. Otherwise None: each head gets a copy of the keys and values that it shared."""
    if heads.model.kv_heads is None:
        return None
    found = set()
    for layer, module in heads.layers.items():
        if kept[layer]:
            sizes = Counter(_groups(module, kept[layer])).values()
            found.add((len(sizes), len(set(sizes)) == 1))
    ((count, even), *others) = found
    return count if even and not others else None


def weights(heads: Heads, kept: Kept) -> dict[str, Tensor]:
    """The weights of the model without the heads that are not in `kept`."""
    found = own_weights(heads.model)
    paths = {module: path for path, module in heads.model.named_modules()}
    shared = kv_heads(heads, kept)
    for layer, module in heads.layers.items():
        own, path, size = kept[layer], paths[module], module.heads.size
        groups = _groups(module, own)
        for name, places in (("query", own), ("key", groups), ("value", groups)):
            once = list(dict.fromkeys(places)) if shared and name != "query" else places
            for part in ("weight", "bias"):
                if (key := f"{path}.{name}.{part}") in found:
                    found[key] = _rows(found[key], once, size)
        if (key := f"{path}.qk_norm.scale") in found:
            found[key] = found[key][list(own)]
        key = f"{path}.output.weight"
        found[key] = _rows(found[key].T, own, size).T.contiguous()
        for key in [key for key in found if key.startswith(f"{path}.attend.")]:  # which have heads first
            found[key] = found[key][list(own)]
    return found


def _groups(module: MultiHeadAttention, kept: Sequence[int]) -> list[int]:
    """The head of keys and values of each head."""
    return [head * module.heads.kv // module.heads.count for head in kept]


def _rows(weight: Tensor, heads: Sequence[int], size: int) -> Tensor:
    if not len(weight):  # of a layer without heads
        return weight
    return weight.unflatten(0, (-1, size))[torch.tensor(heads, dtype=torch.int64)].flatten(0, 1).contiguous()


def translation_seconds(
    run: Run, cut: Collection[Head | str | int], smaller: Run, lines: Sequence[str], repetitions: int
) -> dict[str, float]:
    """Median seconds to translate `lines`: by the whole model, with the heads of `cut` masked, and without them; timed
    one after the other, `repetitions` times."""
    heads = Heads(run.model)
    ways: dict[str, tuple[Translator, Any]] = {
        "whole": (run.translator, nullcontext),
        "masked": (run.translator, lambda: heads.gated(dict.fromkeys(cut, 0.0))),
        "pruned": (smaller.translator, nullcontext),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for round_ in range(repetitions + 1):  # the first to warm up
        for name, (translator, context) in ways.items():
            start = time.perf_counter()
            with context():
                translator.translate(lines)
            if round_:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(each) for name, each in seconds.items()}
