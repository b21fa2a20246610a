"""Path patching between twins: the circuit through which the cue reaches the translation.

A sender has its output for the twin, and all other heads keep their outputs for the sentence. So only the direct path
reaches the input of a receiver, through the residual stream and the feed-forward sublayers; from the encoder to a cross
head, through its keys and values. The output that the receiver then computes is put into the run of the sentence, where
all later heads are free: the log-odds move by the effect of this one path. Wang et al. 2023, "Interpretability in the
wild", section 3.1; Goldowsky-Dill et al. 2023, "Localizing model behavior with path patching".

Two more ends: the sender "source" is the words of the twin at the aligned tokens; the receiver "output" is the logits,
which a sender reaches past all other heads.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headcount.heads.analysis import Analysis, Arrays, Part
from headcount.heads.interface import Head, Heads, Layer
from headcount.heads.likelihood import Progress
from headcount.heads.patching import TwinPairs, Twins, each_sender, effects, lacks_twins, twin_effects, twin_pairs
from headcount.heads.twin_shares import move_shares

SOURCE = "source"


def reaches(sender: Head | None, receiver: Head) -> bool:
    """Whether a sender's output is part of a receiver's input without another head in between; None: the source."""
    if sender is None or sender.kind == "encoder":
        before = 0 if sender is None else sender.layer
        return receiver.kind == "cross" or (receiver.kind == "encoder" and before < receiver.layer)
    own, other = ((head.layer, head.kind == "cross") for head in (sender, receiver))
    return receiver.kind != "encoder" and own < other


def paths_of(heads: Heads, senders: list[int]) -> NDArray[np.int64]:
    """All direct paths of these senders, as numbers [path, 2]: the place of the sender in the list, and the receiver.
    senders: numbers of heads, or that of all heads for the source."""
    names = [*heads.names, None]
    return np.argwhere([[reaches(names[sender], head) for head in heads.names] for sender in senders])


def path_effects(heads: Heads, pairs: TwinPairs, senders: list[int], progress: Progress = lambda done: None) -> Arrays:
    """See `effects`; total, direct [sender, pair] with the sender's output for the twin, all other heads free or none;
    path [path, pair] of `paths_of`."""
    alone = each_sender(heads)
    sender_of, receiver = torch.from_numpy(paths_of(heads, senders).T.copy()).to(alone.device)

    def act(runs: Twins) -> dict[str, Tensor]:
        direct, received = runs.direct(alone[senders])
        path = runs.patched(alone[receiver], (received, sender_of))
        return {"direct": direct, "total": runs.patched(alone[senders]), "path": path}

    return effects(heads, pairs, act, progress)


def chosen_senders(analysis: Analysis) -> list[int]:
    """The heads with the largest effects on any phenomenon of the validation sentences, at most `path_senders`. Those
    of the decoder's first layer read the translation alone: they have nothing of the twin to send."""
    heads, valid, most = analysis.heads, analysis.valid, analysis.settings.path_senders
    able = [number for number, head in enumerate(heads.names) if head.place != Layer("decoder", 1)]
    if most is None or most >= len(able) or not len(valid.twinned):
        return able[:most]
    numbers = valid.twins(analysis.settings.path_pairs)
    found = twin_effects(heads, twin_pairs(analysis.run, valid, numbers), each_sender(heads)[able])
    phenomenon = valid.labels["phenomenon"][valid.twinned[numbers]]
    shares = move_shares([str(number) for number in able], found["patched"], found["base"], found["twin"], phenomenon)
    largest = np.nan_to_num(abs(shares.estimate)).max(axis=1)
    return sorted(able[place] for place in np.argsort(-largest, kind="stable")[:most])


def paths(analysis: Analysis, progress: Progress) -> Arrays:
    """Effects of direct paths on `path_pairs` pairs, as many of each phenomenon and grade: arrays base, twin [pair],
    total, direct [sender, pair], path [path, pair], see `path_effects`; sender: names; path_sender, path_receiver:
    names [path]; row, phenomenon, grade [pair]."""
    heads, test = analysis.heads, analysis.test
    numbers = test.twins(analysis.settings.path_pairs)
    senders = [*chosen_senders(analysis), len(heads)]
    found = path_effects(heads, twin_pairs(analysis.run, test, numbers), senders, progress)
    sender, receiver = paths_of(heads, senders).T
    found["sender"] = np.array([*map(str, heads.names), SOURCE])[senders]
    found |= {"path_sender": found["sender"][sender], "path_receiver": heads.labels[receiver]}
    return found | {name: each[test.twinned[numbers]] for name, each in test.labels.items()}


PATHS = Part(
    "paths",
    "direct paths from head to head",
    paths,
    steps=lambda analysis: len(analysis.test.twins(analysis.settings.path_pairs)),
    settings=("path_pairs", "path_senders"),
    lacks=lacks_twins,
)
