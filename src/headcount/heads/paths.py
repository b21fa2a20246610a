"""Path patching between twins: the circuit through which the cue reaches the translation.

A sender has its output for the twin, and all other heads keep their outputs for the sentence. So only the direct path
reaches the input of a receiver, through the residual stream and the feed-forward sublayers; from the encoder to a cross
head, through its keys and values. The output that the receiver then computes is put into the run of the sentence, where
all later heads are free: the log-odds move by the effect of this one path. Wang et al. 2023, "Interpretability in the
wild", section 3.1; Goldowsky-Dill et al. 2023, "Localizing model behavior with path patching".

Two more ends: the sender "source" is the words of the twin at the aligned tokens; the receiver "output" is the logits,
which a sender reaches past all other heads.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from headcount.heads.analysis import Analysis, Arrays, Part
from headcount.heads.evaluation_set import stratified
from headcount.heads.interface import Edit, Head, Heads, Layer
from headcount.heads.likelihood import Progress
from headcount.heads.observed import lacks_source
from headcount.heads.patching import Outputs, TwinPairs, Twins, each_head, twin_effects, twin_pairs
from headcount.heads.twin_shares import move_shares

SOURCE, OUTPUT = "source", "output"


class Path(NamedTuple):
    """A direct path, as numbers: the sender in the list of senders, the receiver among all heads."""

    sender: int
    receiver: int


def reaches(sender: Head | None, receiver: Head) -> bool:
    """Whether a sender's output is part of a receiver's input without another head in between; None: the source."""
    if sender is None or sender.kind == "encoder":
        before = 0 if sender is None else sender.layer
        return receiver.kind == "cross" or (receiver.kind == "encoder" and before < receiver.layer)
    return receiver.kind != "encoder" and (sender.layer, sender.kind == "cross") < (
        receiver.layer,
        receiver.kind == "cross",
    )


def paths_of(heads: Heads, senders: Sequence[int | None]) -> list[Path]:
    """All direct paths of these senders, heads by number or None for the source."""
    return [
        Path(number, receiver)
        for number, sender in enumerate(senders)
        for receiver, head in enumerate(heads.names)
        if reaches(None if sender is None else heads.names[sender], head)
    ]


def direct(runs: Twins, senders: Sequence[int | None]) -> tuple[Tensor, Outputs]:
    """Runs in which only the direct paths of a sender differ from the run of the sentence: log-odds [sender, pair], and
    the outputs that each head would have had, [sender, row, head, query, d_head] a layer."""
    parts = [_direct(runs, senders[start : start + runs.at_once()]) for start in range(0, len(senders), runs.at_once())]
    received = {layer: torch.cat([part[1][layer] for part in parts]) for layer in runs.heads.layers}
    return torch.cat([part[0] for part in parts]), received


def _direct(runs: Twins, senders: Sequence[int | None]) -> tuple[Tensor, Outputs]:
    received: Outputs = {}
    own = _chosen(runs.heads, senders).to(runs.memory.device)

    def freezing(layer: Layer) -> Edit:
        sending = own[:, None, runs.heads.columns(layer), None, None]

        def edit(output: Tensor) -> Tensor:
            received[layer] = output.unflatten(0, (len(senders), -1))
            return torch.where(sending, runs.twin[layer], runs.base[layer]).flatten(0, 1)

        return edit

    with runs.heads.edited({layer: freezing(layer) for layer in runs.heads.layers}):
        odds = runs.decoded(runs.encoded(_sources(runs, senders)))
    return odds, received


def _chosen(heads: Heads, senders: Sequence[int | None]) -> Tensor:
    """Settings [sender, head] with the sender alone; the source is no head."""
    chosen = torch.zeros(len(senders), len(heads), dtype=torch.bool)
    for number, sender in enumerate(senders):
        if sender is not None:
            chosen[number, sender] = True
    return chosen


def _sources(runs: Twins, senders: Sequence[int | None]) -> Tensor:
    """Source tokens [sender x pair, source]."""
    own = runs.batch.source
    changed = runs.batch.aligned(runs.batch.twin, own, 1)
    return torch.cat([changed if sender is None else own for sender in senders])


@torch.inference_mode()
def path_effects(
    heads: Heads, pairs: TwinPairs, senders: Sequence[int | None], progress: Progress | None = None
) -> Arrays:
    """Log-odds in nats, float64: base, twin [pair] of the sentence and of its twin; total, direct [sender, pair] with
    the sender's output for the twin, all other heads free or none; path [path, pair] of `paths_of`."""
    paths = paths_of(heads, senders)
    receivers = torch.zeros(len(paths), len(heads), dtype=torch.bool)
    receivers[torch.arange(len(paths)), [path.receiver for path in paths]] = True
    sender_of = torch.tensor([path.sender for path in paths], dtype=torch.long, device=heads.model.device)
    rows_of = {"total": len(senders), "direct": len(senders), "path": len(paths)}
    found: Arrays = {name: np.zeros((count, len(pairs))) for name, count in rows_of.items()}
    found |= {name: np.zeros(len(pairs)) for name in ("base", "twin")}
    for rows, batch in pairs.batches():
        runs = Twins(heads, batch)
        odds, received = direct(runs, senders)
        found["base"][rows], found["twin"][rows] = runs.odds.cpu(), runs.twin_odds.cpu()
        found["direct"][:, rows], found["total"][:, rows] = odds.cpu(), total(runs, senders).cpu()
        found["path"][:, rows] = runs.patched(receivers, partial(_received, received, sender_of)).cpu()
        if progress is not None:
            progress(len(rows))
    return found


def _received(outputs: Outputs, sender_of: Tensor, layer: Layer, settings: Tensor) -> Tensor:
    return outputs[layer][sender_of[settings]]


def total(runs: Twins, senders: Sequence[int | None]) -> Tensor:
    """Log-odds [sender, pair] with a sender's output for the twin and all later heads free."""
    odds = runs.patched(_chosen(runs.heads, senders))
    for number, sender in enumerate(senders):
        if sender is None:
            odds[number] = runs.decoded(runs.encoded(_sources(runs, [None])))[0]
    return odds


def chosen_senders(analysis: Analysis) -> list[int]:
    """The heads with the largest effects on any phenomenon of the validation sentences, at most `path_senders`. Those
    of the decoder's first layer read the translation alone: they have nothing of the twin to send."""
    heads, valid, most = analysis.heads, analysis.valid, analysis.settings.path_senders
    able = [number for number, head in enumerate(heads.names) if head.place != Layer("decoder", 1)]
    if most is None or most >= len(able) or not len(valid.tested):
        return able[:most]
    numbers = stratified(valid.cells, analysis.settings.path_pairs)
    alone = each_head(heads)[able]
    found = twin_effects(heads, twin_pairs(analysis.run, valid, numbers), alone)
    phenomenon = valid.labels["phenomenon"][numbers]
    shares = move_shares(able, found["patched"], found["base"], found["twin"], phenomenon)
    largest = np.nan_to_num(abs(shares.share)).max(axis=1)
    return sorted(able[place] for place in np.argsort(-largest, kind="stable")[:most])


def paths(analysis: Analysis, progress: Progress) -> Arrays:
    """Effects of direct paths on `path_pairs` pairs, as many of each phenomenon and grade: arrays base, twin [pair],
    total, direct [sender, pair], path [path, pair], see `path_effects`; sender: names; path_sender, path_receiver:
    names [path]; row, phenomenon, grade [pair]."""
    heads, test = analysis.heads, analysis.test
    numbers = stratified(test.cells, analysis.settings.path_pairs)
    senders = [*chosen_senders(analysis), None]
    found = path_effects(heads, twin_pairs(analysis.run, test, numbers), senders, progress)
    names = np.array([SOURCE if sender is None else str(heads.names[sender]) for sender in senders])
    ends = paths_of(heads, senders)
    return {
        **found,
        "sender": names,
        "path_sender": names[[path.sender for path in ends]],
        "path_receiver": np.array([str(heads.names[path.receiver]) for path in ends]),
        **{name: each[numbers] for name, each in test.labels.items()},
    }


PATHS = Part(
    "paths",
    "direct paths from head to head",
    paths,
    steps=lambda analysis: len(stratified(analysis.test.cells, analysis.settings.path_pairs)),
    settings=("path_pairs", "path_senders"),
    gold=True,
    lacks=lacks_source,
)
