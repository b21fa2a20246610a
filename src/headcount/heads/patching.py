"""Activation patching between twins: the heads that carry the cue.

The twin of a sentence differs in what decides the phenomenon, and its one translation is the wrong translation of the
sentence. The output of one head in the run of the twin takes the place of its output in the run of the sentence. Its
effect is the share of the way to the twin that the log-odds of both translations move:

    (LD_patched - LD_base) / (LD_twin - LD_base),   LD = log p(right) - log p(wrong)

Vig et al. 2020, "Investigating gender bias in language models using causal mediation analysis"; Wang et al. 2023,
"Interpretability in the wild". The decoder reads the same translation in both runs, so its positions fit. In the
encoder, the output at the aligned token is taken, see `places`; other tokens keep their own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from headcount.data.batches import Sentences, collate
from headcount.data.batching import in_order_of_length
from headcount.data.tokenizer import PAD
from headcount.heads.analysis import Analysis, Arrays, Part
from headcount.heads.evaluation_set import EvaluationSet, select
from headcount.heads.interface import Heads, Layer
from headcount.heads.likelihood import LOGITS_AT_ONCE, ROW_TOKENS, Progress
from headcount.heads.observed import in_order
from headcount.heads.spelling import Spelled
from headcount.run.opened import Run

NONE = -1  # no token of the twin
PAIR_TOKENS = 512  # padded tokens of a batch of pairs, which each setting multiplies
Outputs = dict[Layer, Tensor]
"""Outputs of the heads of each layer under some settings, [setting, row, head, query, d_head]. Rows: in the encoder
[pair]; in the decoder [translation x pair], the right translations first."""


class Tokens(NamedTuple):
    """A sentence as words, and the word of each of its tokens, in order, without its end."""

    words: Sequence[str]
    owner: NDArray[np.int64]


def places(sentence: Tokens, twin: Tokens) -> NDArray[np.int64]:
    """The token of the twin for each token of a sentence, its end counted; -1 for none.

    Words are aligned by difflib, changed words to those in their place one by one, or as a block if their numbers
    differ. Tokens are spread evenly over those of the other word or block; a single one is put at the last, where a
    verb follows "did not". Words without a counterpart have none.
    """
    found = np.full(len(sentence.owner) + 1, NONE, dtype=np.int64)
    for _, i, j, k, m in SequenceMatcher(None, sentence.words, twin.words, autojunk=False).get_opcodes():
        parts = j - i if j - i == m - k else 1
        own = np.searchsorted(sentence.owner, np.linspace(i, j, parts + 1)).tolist()
        other = np.searchsorted(twin.owner, np.linspace(k, m, parts + 1)).tolist()
        for (start, end), there in zip(pairwise(own), pairwise(other), strict=True):
            found[start:end] = spread(end - start, *there)
    found[-1] = len(twin.owner)
    return found


def spread(count: int, start: int, end: int) -> NDArray[np.int64]:
    """`count` of the places from start to end - 1, evenly, the first and the last among them; a single one is the last;
    -1 where there is no place."""
    if start == end:
        return np.full(count, NONE, dtype=np.int64)
    if count == 1:
        return np.array([end - 1])
    return np.rint(np.linspace(start, end - 1, count)).astype(np.int64)


@dataclass(frozen=True)
class TwinPairs:
    """Sentences with their twins, [pair], as token ids; `wrong` is the one translation of the twin. places: the token
    of the twin for each token of the source, see `places`."""

    source: Sentences
    right: Sentences
    twin: Sentences
    wrong: Sentences
    places: list[NDArray[np.int64]]

    @property
    def sides(self) -> tuple[tuple[Sentences, Sentences], tuple[Sentences, Sentences]]:
        """Both sources, and both translations."""
        return (self.source, self.twin), (self.right, self.wrong)


def twin_pairs(run: Run, test: EvaluationSet, numbers: NDArray[np.int64]) -> TwinPairs:
    """The pairs of an evaluation set with these numbers within `twinned`."""
    pairs = test.twinned[numbers]
    rows = test.tested[pairs]
    text = test.rows.select(rows)
    source, twin = select(test.source, rows), select(test.twin, numbers)
    sides = []
    for ids, column in ((source, "source"), (twin, "twin")):
        spelled = Spelled(run.tokenizer.source, ids, list(text[column]))
        sides.append([Tokens(words, spelled.owners(row)) for row, words in enumerate(spelled.words)])
    aligned = [places(*both) for both in zip(*sides, strict=True)]
    return TwinPairs(source, select(test.target, rows), twin, select(test.contrast, pairs), aligned)


class Twins:
    """The runs of some pairs and of their twins, and runs of the sentences with heads changed.

    A setting is a row of `chosen` [setting, sender]: which heads have their outputs for the twin; the last sender,
    behind all heads, is the source, the words of the twin at the aligned tokens. base, twin: the outputs of all heads
    in both runs, those of the twin's encoder at the tokens of the sentence. memory, twin_memory: likewise the encoder's
    output. odds, twin_odds [1, pair]: log-odds of right against wrong translation in both runs, float64.
    """

    def __init__(self, heads: Heads, pairs: TwinPairs, rows: NDArray[np.int64]) -> None:
        self.heads, self.count = heads, len(rows)
        own, other = (
            collate(*sides, rows, 0).to(heads.model.device)
            for sides in ((pairs.source, pairs.right), (pairs.twin, pairs.wrong))
        )
        self.source, self.mask = own.source, own.source_mask
        place = [torch.from_numpy(pairs.places[row]) for row in rows]
        self.place = pad_sequence(place, batch_first=True, padding_value=NONE).to(own.source.device)
        self.target_in, target_out = (
            pad_sequence([*a, *b], batch_first=True, padding_value=PAD)
            for a, b in ((own.target_in, other.target_in), (own.target_out, other.target_out))
        )
        right, wrong = target_out.chunk(2)
        parted = (right != wrong).cummax(dim=1).values  # before, both have the same log-probabilities
        self.target_out = target_out.where(parted.repeat(2, 1), PAD)
        self.memory, self.base, self.odds = self._recorded(own.source, own.source_mask)
        memory, twin, self.twin_odds = self._recorded(other.source, other.source_mask)
        self.twin_source = self._aligned(other.source, own.source, 1)
        self.twin_memory = self._aligned(memory, self.memory, 1)
        self.twin = {
            layer: self._aligned(each[0], self.base[layer][0], 2)[None] if layer.kind == "encoder" else each
            for layer, each in twin.items()
        }

    def _aligned(self, twin: Tensor, base: Tensor, dim: int) -> Tensor:
        """`twin` at the aligned tokens and `base` at the others; dimension `dim` is that of the tokens."""
        place = self.place.view([size if at in (0, dim) else 1 for at, size in enumerate(base.shape)])
        return twin.gather(dim, place.clamp(min=0).expand(base.shape)).where(place >= 0, base)

    def _recorded(self, source: Tensor, mask: Tensor) -> tuple[Tensor, Outputs, Tensor]:
        with self.heads.recorded() as records:
            memory = self.heads.model.encode(source, mask)
            odds = self.decoded(memory, mask)
        return memory, {layer: each[None] for layer, (each,) in records.items()}, odds

    def decoded(self, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Log-odds [setting, pair] given the encoder's output [setting x pair, source, d_model]; mask [pair, source]:
        of the twin's source, if it is that."""
        settings, model = len(memory) // self.count, self.heads.model
        mask = (self.mask if mask is None else mask).repeat(2 * settings, 1)
        both = memory.unflatten(0, (settings, -1)).repeat(1, 2, 1, 1).flatten(0, 1)
        hidden = model.decode(both, mask, self.target_in.repeat(settings, 1))
        target = self.target_out.repeat(settings, 1)
        decisive = target != PAD
        parts = zip(hidden[decisive].split(LOGITS_AT_ONCE), target[decisive].split(LOGITS_AT_ONCE), strict=True)
        exact = torch.promote_types(hidden.dtype, torch.float32)
        found = [F.cross_entropy(model.output(x).to(exact), y, reduction="none").double() for x, y in parts]
        losses = hidden.new_zeros(target.shape, dtype=torch.float64)
        losses[decisive] = torch.cat(found)
        right, wrong = losses.sum(dim=1).view(settings, 2, -1).unbind(1)
        return wrong - right

    def patched(self, chosen: Tensor, put: tuple[Outputs, Tensor] | None = None) -> Tensor:
        """Log-odds [setting, pair] with the outputs of the chosen senders replaced, all other heads free. put: what is
        put there, outputs and which of their settings [setting]; None: the outputs for the twin."""
        odds = self.odds.repeat(len(chosen), 1)
        encoder = chosen[:, : sum(head.kind == "encoder" for head in self.heads.names)].any(dim=1)
        group = encoder + 2 * chosen[:, -1]  # what reads the source anew, and another one, in passes of its own
        values, which = put or (self.twin, None)
        for settings in (each for number in range(4) for each in self._passes(group == number)):
            own = chosen[settings]
            instead = {
                layer: (own[:, columns], values[layer] if which is None else values[layer][which[settings]])
                for layer in self.heads.layers
                if own[:, columns := self.heads.columns(layer)].any()
            }
            with self.heads.edited({layer: partial(_replaced, *each) for layer, each in instead.items()}):
                odds[settings] = self._run(own, bool(group[settings[0]]))
        return odds

    def direct(self, chosen: Tensor) -> tuple[Tensor, Outputs]:
        """Log-odds [setting, pair] where only the direct paths of the chosen senders differ from the run of the
        sentence, since all other heads keep their outputs; and the outputs that each head would have had."""
        odds = []
        received: dict[Layer, list[Tensor]] = {layer: [] for layer in self.heads.layers}
        for settings in self._passes(torch.ones(len(chosen))):
            own = chosen[settings]
            edits = {}
            for layer, columns in ((layer, self.heads.columns(layer)) for layer in self.heads.layers):
                frozen = torch.where(own[:, None, columns, None, None], self.twin[layer], self.base[layer])
                edits[layer] = partial(_replaced, torch.ones_like(own[:, columns]), frozen)
            with self.heads.recorded() as records, self.heads.edited(edits):
                odds.append(self._run(own))
            for layer, (each,) in records.items():
                received[layer].append(each.unflatten(0, (len(own), -1)))
        return torch.cat(odds), {layer: torch.cat(each) for layer, each in received.items()}

    def _passes(self, which: Tensor) -> tuple[Tensor, ...]:
        """The settings of each pass, of those that are marked [setting]."""
        at_once = max(1, ROW_TOKENS // max(self.source.numel(), self.target_in.numel()))
        settings = which.nonzero()[:, 0]
        return settings.split(at_once) if len(settings) else ()

    def _run(self, chosen: Tensor, encode: bool = True) -> Tensor:
        """Log-odds [setting, pair] of the sources that are chosen; encode False: the encoder is as without a change."""
        count = len(chosen)
        if not encode:
            return self.decoded(self.memory.repeat(count, 1, 1))
        source = torch.where(chosen[:, -1, None, None], self.twin_source, self.source).flatten(0, 1)
        return self.decoded(self.heads.model.encode(source, self.mask.repeat(count, 1)))


def _replaced(chosen: Tensor, values: Tensor, output: Tensor) -> Tensor:
    """The outputs of the heads `chosen` [setting, head] of a layer replaced by values that fit [setting, row, head,
    query, d_head]."""
    by_setting = output.unflatten(0, (len(chosen), -1))
    return torch.where(chosen[:, None, :, None, None], values.to(output.dtype), by_setting).flatten(0, 1)


def each_sender(heads: Heads) -> Tensor:
    """Settings [head + 1, sender]: each head alone, and the source."""
    return torch.eye(len(heads) + 1, dtype=torch.bool, device=heads.model.device)


def each_head(heads: Heads) -> Tensor:
    """Settings [head + layer, sender]: each head alone, then the heads of each layer together."""
    alone = each_sender(heads)[:-1]
    return torch.cat([alone, *(alone[heads.columns(layer)].any(dim=0)[None] for layer in heads.layers)])


@torch.inference_mode()
def effects(
    heads: Heads, pairs: TwinPairs, act: Callable[[Twins], dict[str, Tensor]], progress: Progress = lambda done: None
) -> Arrays:
    """Log-odds in nats, float64: base, twin [pair] of the sentence and of its twin; what `act` gives, [..., pair]."""
    parts = []
    sources, targets = (np.maximum(*(each.lengths for each in side)) for side in pairs.sides)
    for rows in in_order_of_length(sources, targets, PAIR_TOKENS):
        runs = Twins(heads, pairs, rows)
        found = {"base": runs.odds[0], "twin": runs.twin_odds[0], **act(runs)}
        parts.append((rows, {name: each.cpu().numpy() for name, each in found.items()}))
        progress(len(rows))
    return in_order(parts, axis=-1)


def twin_effects(heads: Heads, pairs: TwinPairs, chosen: Tensor, progress: Progress = lambda done: None) -> Arrays:
    """See `effects`; patched [setting, pair] with the twin's outputs of the senders `chosen` [setting, sender]; memory
    [pair] with the twin's whole encoder output at the aligned tokens, the most that the encoder's heads can do."""

    def act(runs: Twins) -> dict[str, Tensor]:
        return {"memory": runs.decoded(runs.twin_memory)[0], "patched": runs.patched(chosen)}

    return effects(heads, pairs, act, progress)


def twins(analysis: Analysis, progress: Progress) -> Arrays:
    """Effects of the twin's output of each head: arrays base, twin, memory [pair], patched [head, pair], layers [layer,
    pair] (all heads of a layer at once), see `twin_effects`; head, layer: their names; row, phenomenon, grade [pair];
    same_length [pair]: whether both sources have as many tokens."""
    heads, test = analysis.heads, analysis.test
    pairs = twin_pairs(analysis.run, test, np.arange(len(test.twinned)))
    found = twin_effects(heads, pairs, each_head(heads), progress)
    patched = found.pop("patched")
    found |= {"patched": patched[: len(heads)], "layers": patched[len(heads) :], "head": heads.labels}
    found["layer"] = np.array([str(layer) for layer in heads.layers])
    labels = {name: each[test.twinned] for name, each in test.labels.items()}
    return found | {"same_length": pairs.source.lengths == pairs.twin.lengths} | labels


def lacks_twins(analysis: Analysis) -> str | None:
    """Why twins are not patched: no pair has a twin."""
    twinned = len(analysis.test.twinned)
    return None if twinned else "needs sentences with counterfactuals, of the built-in corpus or of contrasts="


TWINS = Part(
    "twins",
    "each head patched with its output for the counterfactual",
    twins,
    steps=lambda analysis: len(analysis.test.twinned),
    lacks=lacks_twins,
)
