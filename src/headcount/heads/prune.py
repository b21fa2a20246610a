"""Pruning: a physically smaller run without some of its heads, whose output is that of the run with these heads masked.

The rows and columns of a cut head leave the projections. The output projection keeps its bias, so a layer without heads
adds that alone.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headcount.command_lines import command, hydra_text
from headcount.errors import InputError
from headcount.files import show
from headcount.heads.hard_concrete import GateTraining
from headcount.heads.interface import KINDS, Head, Heads, Layer
from headcount.heads.orders import ORDERS, choice_on, split_of
from headcount.model.multi_head import MultiHeadAttention
from headcount.progress import progress_bar
from headcount.run.build import build_model
from headcount.run.opened import Run, fill, make_translator
from headcount.run.written import parameters, write_run
from headcount.settings import typed
from headcount.training.averaging import own_weights

Kept = Mapping[Layer, Sequence[int]]
"""The heads of each layer that stay, counted from 0."""


def pruned(run: Run, cut: Collection[Head | str | int], directory: Path, provenance: Mapping[str, Any]) -> Run:
    """The run without the heads of `cut`, as a run of `directory`, to which nothing is written.

    Its config has head counts by layer, and `pruned` with the provenance and the heads. Raises InputError for a head
    that the model does not have, and for what stays where no settings of the model describe it.
    """
    heads = Heads(run.model)
    stays = heads.gates_off(cut).bool().cpu().numpy()
    kept = {layer: stays[heads.columns(layer)].nonzero()[0].tolist() for layer in heads.layers}
    named = {"kept": heads.labels[stays].tolist(), "cut": heads.labels[~stays].tolist()}
    config = run.config.copy()
    config.model.update(settings(heads, kept))
    config.pruned = {**provenance, "run": str(run.directory), **named}
    model = build_model(config, run.tokenizer)
    fill(model, weights(heads, kept))
    model.to(run.model.device, run.model.output.weight.dtype).eval()
    way = run.translator
    translator = make_translator(model, run.tokenizer, way.search, str(directory))
    return replace(run, directory=directory, config=config, model=model, translator=translator)


def settings(heads: Heads, kept: Kept) -> dict[str, Any]:
    """The settings of a model with the heads of `kept`. Raises InputError where the heads that stay have several sizes,
    or self-attentions keep different numbers of local heads, which have one setting for all layers."""
    sizes = sorted({module.heads.size for layer, module in heads.layers.items() if kept[layer]})
    if not sizes:
        raise InputError("no head is left; keep one or more")
    if len(sizes) > 1:
        given = " and ".join(map(str, sizes))
        raise InputError(f"heads of sizes {given} stay, but model.head_size is one for all layers")
    own = [(layer, module) for layer, module in heads.layers.items() if layer.kind != "cross"]
    local = sorted({sum(head < module.heads.local for head in kept[layer]) for layer, module in own})
    if len(local) > 1:
        given = " and ".join(map(str, local))
        raise InputError(f"model.local_heads: {given} local heads of a layer stay; keep as many of each self-attention")
    counts = {f"{kind}_heads": [len(kept[layer]) for layer in heads.layers if layer.kind == kind] for kind in KINDS}
    return {**counts, "head_size": sizes[0], "kv_heads": kv_heads(heads, kept), "local_heads": local[0]}


def kv_heads(heads: Heads, kept: Kept) -> int | None:
    """The heads of keys and values of the model that is left, if one number does for all layers: as many groups with as
    many heads in each. Otherwise None: each head gets a copy of the keys and values that it shared."""
    if heads.model.kv_heads is None:
        return None
    sizes = [Counter(_groups(module, kept[layer])).values() for layer, module in heads.layers.items() if kept[layer]]
    counts = {len(each) for each in sizes}
    return counts.pop() if len(counts) == 1 and all(len(set(each)) == 1 for each in sizes) else None


def weights(heads: Heads, kept: Kept) -> dict[str, Tensor]:
    """The weights of the model without the heads that are not in `kept`."""
    found = own_weights(heads.model)
    paths = {module: path for path, module in heads.model.named_modules()}
    shared = kv_heads(heads, kept)
    for layer, module in heads.layers.items():
        own, path, size = list(kept[layer]), paths[module], module.heads.size
        groups = _groups(module, own)
        groups = list(dict.fromkeys(groups)) if shared else groups
        for name, places in (("query", own), ("key", groups), ("value", groups)):
            for key in (f"{path}.{name}.weight", f"{path}.{name}.bias"):
                if key in found:
                    found[key] = _rows(found[key], places, size)
        found[f"{path}.output.weight"] = _rows(found[f"{path}.output.weight"].T, own, size).T.contiguous()
        if module.output_gate is not None:
            gate = f"{path}.output_gate.weight"
            found[gate] = _rows(found[gate], own, module.output_gate.size)
        for key in found:
            if key == f"{path}.qk_norm.scale" or key.startswith(f"{path}.attend."):  # which have heads first
                found[key] = found[key][own]
    return found


def _groups(module: MultiHeadAttention, kept: Sequence[int]) -> list[int]:
    """The head of keys and values of each head."""
    return [head * module.heads.kv // module.heads.count for head in kept]


def _rows(weight: Tensor, heads: Sequence[int], size: int) -> Tensor:
    if not len(weight):  # of a layer without heads
        return weight
    return weight.unflatten(0, (-1, size))[torch.tensor(heads, dtype=torch.int64)].flatten(0, 1).contiguous()


def prune_run(
    run: Run,
    *,
    prune: int | list[str] | None,
    cut: list[str] | None,
    order: str,
    output: Path | None,
    order_sentences: int | None,
    gate_penalties: list[float],
    gate_steps: int,
    seed: int,
) -> str:
    """Write a run without some heads; a summary. prune: the number of heads to keep, or their names; the rest as in
    conf/heads.yaml. Raises InputError, also for an output that is there already."""
    heads = Heads(run.model)
    gates = GateTraining(tuple(gate_penalties), gate_steps, seed)
    ordered = isinstance(prune, int) and cut is None
    gone = [] if ordered else listed(heads, prune, cut)
    left = check_keep(prune, order, len(heads)) if ordered else len(heads) - len(gone)
    home = run.directory.resolve()
    directory = Path(output or home.with_name(f"{home.name}-{left}_heads"))
    if directory.exists():
        raise InputError(f"{show(directory)} is there already: move it away, or give another output=")
    provenance: dict[str, Any] = {"order": None}
    if ordered:
        with progress_bar(f"pruning order: {order}", None) as progress:
            rows = run.data().one_way[split_of(order)]
            choice = choice_on(run, order, rows, order_sentences, gates, progress)
            gone = sorted(ORDERS[order](choice)[: len(heads) - left])
        provenance = {"order": order, "chosen_on": split_of(order), "sentences": len(choice.source.lengths)}
    smaller = pruned(run, gone, directory, provenance)
    write_run(smaller)
    counts = smaller.model.head_counts
    each = ", ".join(f"{kind} {'/'.join(map(str, counts[f'{kind}_heads']))}" for kind in KINDS)
    lines = [
        f"heads: {len(heads)} before, {left} now; {each}",
        f"parameters: {parameters(run.model):,} before, {parameters(smaller.model):,} now",
    ]
    if run.config.model.get("kv_heads") and smaller.config.model.kv_heads is None:
        lines.append("KV heads: a copy for each head, since layers keep different groups that share them")
    place = show(directory)
    lines += [f"run directory: {place}", f"next:  {command('evaluate', run=place)}"]
    lines += [f"       {command}" for command in trainings(run, smaller)]
    return "\n".join(lines) + "\n"


def check_keep(keep: Any, order: str, heads: int) -> int:
    """The number of heads to keep. Raises InputError for a wrong one, or for an unknown order."""
    if order not in ORDERS:
        raise InputError(f"order={order}: must be one of {', '.join(ORDERS)}")
    if not 0 < keep < heads:
        raise InputError(f"prune={keep}: must be 1 to {heads - 1}; the run has {heads} heads")
    return int(keep)


def listed(heads: Heads, keep: Any, cut: Sequence[str] | None) -> list[int]:
    """The numbers of the heads to cut, from either list. Raises InputError."""
    if (keep is None) == (cut is None):
        raise InputError("prune, cut: give one of them, such as prune=12 or cut=[encoder1.2,cross2.1]")
    name, given = ("prune", keep) if cut is None else ("cut", cut)
    if not given:
        raise InputError(f"{name}={typed(list(given))}: names no head")
    numbers = {heads.number(head) for head in given}
    return sorted(numbers if cut is not None else set(range(len(heads))) - numbers)


def trainings(run: Run, smaller: Run) -> list[str]:
    """The commands that fine-tune a pruned run, and that train its head counts from scratch; run: as it was before."""
    counts, model = smaller.model.head_counts, smaller.config.model
    values = {"head_size": model.head_size} | {f"{kind}_heads": list(counts[f"{kind}_heads"]) for kind in KINDS}
    values |= {name: model[name] for name in ("kv_heads", "local_heads") if run.config.model.get(name)}
    settings = [f"model.{name}={typed(value)}" for name, value in values.items()]
    weights = f"init_from={hydra_text(show(smaller.directory))}"
    return [
        f"{command('train', weights)} ... (to fine-tune it, as the run was trained)",
        f"{command('train', *settings)} ... (the same head counts from scratch)",
    ]
