"""Pruned runs on disk: the heads to cut, the new run directory, and its speed."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from headcount.command_lines import command, hydra_text
from headcount.data.tokenizer import save_tokenizer
from headcount.devices import versions
from headcount.errors import InputError
from headcount.files import new_directory, show
from headcount.heads.evaluation_set import evaluation_set
from headcount.heads.hard_concrete import GateTraining
from headcount.heads.interface import KINDS, Heads
from headcount.heads.orders import ORDERS, choice_on, split_of
from headcount.heads.prune import pruned, translation_seconds
from headcount.model.flops import operations_per_token
from headcount.progress import progress_bar
from headcount.run.directory import begin_metrics, write_config
from headcount.run.opened import Run
from headcount.settings import typed
from headcount.training.averaging import own_weights, save_weights


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
    timed: int,
    repetitions: int,
) -> str:
    """Write a run without some heads; a summary. prune: the number of heads to keep, or their names; the rest as in
    conf/heads.yaml. Raises InputError, also for an output that is there already."""
    heads = Heads(run.model)
    gates = GateTraining(tuple(gate_penalties), gate_steps, seed)
    by = order if isinstance(prune, int) and cut is None else None
    gone = listed(heads, prune, cut) if by is None else None
    left = check_keep(prune, order, len(heads)) if gone is None else len(heads) - len(gone)
    home = run.directory.resolve()
    directory = Path(output or home.with_name(f"{home.name}-{left}_heads"))
    if directory.exists():
        raise InputError(f"{show(directory)} is there already: move it away, or give another output=")
    splits = run.data().one_way if by or timed else {}
    provenance: dict[str, Any] = {"order": by}
    if gone is None:
        with progress_bar(f"order of cutting: {order}", None) as progress:
            choice = choice_on(run, order, splits[split_of(order)], order_sentences, gates, progress)
            found = ORDERS[order](choice)
        gone = [str(heads.names[number]) for number in sorted(found[: len(heads) - left])]
        provenance = {"order": order, "chosen_on": split_of(order), "sentences": len(choice.source.lengths)}
    smaller = pruned(run, gone, directory, provenance)
    write_run(smaller)
    lines = [
        f"heads: {len(heads)} before, {left} now; {_counts(smaller)}",
        f"parameters: {_parameters(run):,} before, {_parameters(smaller):,} now",
    ]
    if run.config.model.get("kv_heads") and smaller.config.model.kv_heads is None:
        lines.append(
            "keys and values: a copy for each head, since layers keep different groups of heads that share them"
        )
    if timed:
        sentences = list(evaluation_set(run, splits["test"], timed).rows["source"])
        lines.append(
            speed(translation_seconds(run, gone, smaller, sentences, repetitions), len(sentences), repetitions)
        )
    place = show(directory)
    lines += [f"run directory: {place}", f"next:  {command('evaluate', run=place)}"]
    lines += [f"       {command}" for command in trainings(run, smaller)]
    return "\n".join(lines) + "\n"


def trainings(run: Run, smaller: Run) -> list[str]:
    """The commands that fine-tune a pruned run, and that train its head counts from scratch; run: as it was before."""
    counts = smaller.model.head_counts
    values = {f"{kind}_heads": list(counts[f"{kind}_heads"]) for kind in KINDS}
    changed = [name for name in ("kv_heads", "local_heads") if run.config.model.get(name)]
    shared = {name: smaller.config.model[name] for name in changed}
    given = {"head_size": smaller.config.model.head_size, **values, **shared}
    settings = [f"model.{name}={typed(value)}" for name, value in given.items()]
    weights = f"init_from={hydra_text(show(smaller.directory))}"
    return [
        f"{command('train', weights)} ... (to fine-tune it, as the run was trained)",
        f"{command('train', *settings)} ... (the same head counts from scratch)",
    ]


def check_keep(keep: Any, order: str, heads: int) -> int:
    """The number of heads to keep. Raises InputError for a wrong one, or for an unknown order."""
    if order not in ORDERS:
        raise InputError(f"order={order}: must be one of {', '.join(ORDERS)}")
    if not 0 < keep < heads:
        raise InputError(f"prune={keep}: must be 1 to {heads - 1}; the run has {heads} heads")
    return int(keep)


def listed(heads: Heads, keep: Sequence[str] | int | None, cut: Sequence[str] | None) -> list[str]:
    """The heads to cut, from either list. Raises InputError."""
    if (keep is None) == (cut is None):
        raise InputError("prune, cut: give one of them, such as prune=12 or cut=[encoder1.2,cross2.1]")
    given: Any = keep if cut is None else cut
    if not given:
        raise InputError(f"{'prune' if cut is None else 'cut'}={typed(list(given or ()))}: names no head")
    numbers = {heads.number(head) for head in given}
    gone = numbers if cut is not None else set(range(len(heads))) - numbers
    return [str(heads.names[number]) for number in sorted(gone)]


def write_run(run: Run) -> None:
    """Write a run to its directory, which must not be there, whole or not at all."""
    figures: dict[str, Any] = {"seed": run.config.seed, "parameters": _parameters(run)}
    with suppress(InputError):  # without the corpus nobody knows the lengths that training counts with
        figures["operations_per_token"] = operations_per_token(run.model, *run.data().mean_lengths)
    figures |= {"model": run.model.head_counts, "versions": versions()}
    with new_directory(run.directory) as directory:
        write_config(directory, run.config)
        save_tokenizer(run.tokenizer, directory)
        save_weights(own_weights(run.model), directory / "model.safetensors")
        begin_metrics(directory, figures)


def _parameters(run: Run) -> int:
    return sum(parameter.numel() for parameter in run.model.parameters())


def _counts(run: Run) -> str:
    each = {name.removesuffix("_heads"): counts for name, counts in run.model.head_counts.items() if name != "kv_heads"}
    return ", ".join(f"{kind} {'/'.join(map(str, counts))}" for kind, counts in each.items())


def speed(seconds: Mapping[str, float], sentences: int, repetitions: int) -> str:
    """The times of `translation_seconds` as text."""
    each = ", ".join(f"{name} {value:.3f} s" for name, value in seconds.items())
    whole, masked = (seconds[name] / seconds["pruned"] for name in ("whole", "masked"))
    return (
        f"{sentences} test sentences translated (median of {repetitions}): {each}; {masked:.2f} times as fast as "
        f"the masked model, which translates alike, {whole:.2f} times as fast as the whole"
    )
