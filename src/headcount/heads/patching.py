"""Activation patching between twins: the heads that carry the cue.

The twin of a sentence differs in what decides the phenomenon, and its one translation is the wrong translation of the
sentence. The output of one head in the run of the twin takes the place of its output in the run of the sentence. Its
effect is the share of the way to the twin that the log-odds of both translations move:

    (LD_patched - LD_base) / (LD_twin - LD_base),   LD = log p(right) - log p(wrong)

Vig et al. 2020, "Investigating gender bias in language models using causal mediation analysis"; Wang et al. 2023,
"Interpretability in the wild". The decoder reads the same translation in both runs, so its positions fit. In the
encoder, the output at the aligned token is taken, see `places`; other tokens keep their own.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from headcount.data.batches import Sentences, collate
from headcount.data.batching import in_order_of_length
from headcount.data.tokenizer import PAD
from headcount.heads.analysis import Analysis, Arrays, Part
from headcount.heads.evaluation_set import EvaluationSet, select
from headcount.heads.interface import Edit, Heads, Layer
from headcount.heads.likelihood import LOGITS_AT_ONCE, ROW_TOKENS, Progress
from headcount.heads.observed import lacks_source
from headcount.heads.spelling import Spelled
from headcount.run.opened import Run

NONE = -1  # no token of the twin
PAIR_TOKENS = 512  # padded tokens of a batch of pairs, which each setting multiplies
Outputs = dict[Layer, Tensor]
"""Outputs of the heads of each layer, [row, head, query, d_head]. Rows: in the encoder [pair]; in the decoder
[translation x pair], the right translations first."""
Values = Callable[[Layer, Tensor], Tensor]
"""What takes the place of the outputs of a layer under some settings: it fits [setting, row, head, query, d_head]."""


class Tokens(NamedTuple):
    """A sentence as words, and the word of each of its tokens, in order, without its end."""

    words: Sequence[str]
    owner: NDArray[np.int64]

    def span(self, first: int, end: int) -> tuple[int, int]:
        """The first token and the end of the words from `first` to `end` - 1."""
        start, stop = np.searchsorted(self.owner, [first, end]).tolist()
        return start, stop


def places(sentence: Tokens, twin: Tokens) -> NDArray[np.int64]:
    """The token of the twin for each token of a sentence, its end counted; -1 for none.

    Words are aligned by difflib, changed words to those in their place one by one, or as a block if their numbers
    differ. Tokens are spread evenly over those of the other word or block; a single one is put at the last, where a
    verb follows "did not". Words without a counterpart have none.
    """
    found = np.full(len(sentence.owner) + 1, NONE, dtype=np.int64)
    for kind, *block in SequenceMatcher(None, sentence.words, twin.words, autojunk=False).get_opcodes():
        for i, j, k, m in _units(*block) if kind in ("equal", "replace") else ():
            start, end = sentence.span(i, j)
            found[start:end] = spread(end - start, *twin.span(k, m))
    found[-1] = len(twin.owner)
    return found


def _units(i: int, j: int, k: int, m: int) -> list[tuple[int, int, int, int]]:
    """The words from i to j and from k to m as pairs of single words, if there are as many."""
    if j - i != m - k:
        return [(i, j, k, m)]
    return [(i + step, i + step + 1, k + step, k + step + 1) for step in range(j - i)]


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
    places: list[np.ndarray]

    def __len__(self) -> int:
        return len(self.places)

    def batches(self) -> Iterator[tuple[np.ndarray, "TwinBatch"]]:
        """All pairs in batches of similar lengths: their numbers and their tensors."""
        sources = np.maximum(self.source.lengths, self.twin.lengths)
        targets = np.maximum(self.right.lengths, self.wrong.lengths)
        for rows in in_order_of_length(sources, targets, PAIR_TOKENS) if len(self) else ():
            yield rows, self._batch(rows)

    def _batch(self, rows: np.ndarray) -> "TwinBatch":
        own, other = collate(self.source, self.right, rows, 0), collate(self.twin, self.wrong, rows, 0)
        target_in, target_out = (
            torch.nn.utils.rnn.pad_sequence([*a, *b], batch_first=True, padding_value=PAD)
            for a, b in ((own.target_in, other.target_in), (own.target_out, other.target_out))
        )
        right, wrong = target_out.chunk(2)
        parted = (right != wrong).cummax(dim=1).values  # before, both have the same log-probabilities
        place = torch.full(own.source.shape, NONE)
        for row, number in enumerate(rows):
            place[row, : len(self.places[number])] = torch.from_numpy(self.places[number])
        decisive = target_out.where(parted.repeat(2, 1), PAD)
        return TwinBatch(own.source, own.source_mask, other.source, other.source_mask, place, target_in, decisive)


def twin_pairs(run: Run, test: EvaluationSet, numbers: np.ndarray) -> TwinPairs:
    """The pairs of an evaluation set with these numbers."""
    rows = test.tested[numbers]
    text = test.rows.select(rows)

    source, twin = select(test.source, rows), select(test.twin, numbers)
    sides = (_tokens(run, ids, list(text[column])) for ids, column in ((source, "source"), (twin, "twin")))
    aligned = [places(*both) for both in zip(*sides, strict=True)]
    right, wrong = select(test.target, rows), select(test.contrast, numbers)
    return TwinPairs(source, right, twin, wrong, aligned)


def _tokens(run: Run, sources: Sentences, texts: Sequence[str]) -> list[Tokens]:
    spelled = Spelled(run.tokenizer.source, sources, texts)
    return [Tokens(words, spelled.owners(row)) for row, words in enumerate(spelled.words)]


class TwinBatch(NamedTuple):
    """Tensors of some pairs.

    source, source_mask, twin, twin_mask [pair, token]. place [pair, source]: the token of the twin, -1 for none.
    target_in [translation x pair, target]: the right translations, then the wrong ones. target_out: the tokens to
    predict, PAD where both translations are still the same.
    """

    source: Tensor
    source_mask: Tensor
    twin: Tensor
    twin_mask: Tensor
    place: Tensor
    target_in: Tensor
    target_out: Tensor

    def aligned(self, twin: Tensor, base: Tensor, dim: int) -> Tensor:
        """`twin` at the aligned tokens and `base` at the others; dimension `dim` is that of the tokens."""
        shape = [len(self.place), *(1 for _ in base.shape[1:])]
        shape[dim] = -1
        place = self.place.view(shape)
        return twin.gather(dim, place.clamp(min=0).expand(base.shape)).where(place >= 0, base)


class Twins:
    """The runs of some sentences and of their twins, and runs of the sentences with heads changed.

    base, twin: the outputs of all heads in both runs, those of the twin's encoder at the tokens of the sentence. odds,
    twin_odds [pair]: log-odds of right against wrong translation in both runs, float64.
    """

    def __init__(self, heads: Heads, batch: TwinBatch) -> None:
        self.heads = heads
        self.batch = TwinBatch(*(each.to(heads.model.device) for each in batch))
        self.memory, self.base, self.odds = self._run(self.batch.source, self.batch.source_mask)
        memory, twin, self.twin_odds = self._run(self.batch.twin, self.batch.twin_mask)
        self.twin_memory = self.batch.aligned(memory, self.memory, 1)
        self.twin = {
            layer: self.batch.aligned(each, self.base[layer], 2) if layer.kind == "encoder" else each
            for layer, each in twin.items()
        }

    def __len__(self) -> int:
        return len(self.batch.source)

    def _run(self, source: Tensor, mask: Tensor) -> tuple[Tensor, Outputs, Tensor]:
        with self.heads.recorded() as records:
            memory = self.heads.model.encode(source, mask)
            odds = self.decoded(memory, mask)[0]
        return memory, {layer: each for layer, (each,) in records.items()}, odds

    def encoded(self, source: Tensor) -> Tensor:
        """The encoder's output [setting x pair, source, d_model] of sources [setting x pair, source]."""
        settings = len(source) // len(self)
        memory: Tensor = self.heads.model.encode(source, self.batch.source_mask.repeat(settings, 1))
        return memory

    def decoded(self, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Log-odds [setting, pair] given the encoder's output [setting x pair, source, d_model]; mask [pair, source]:
        of the twin's source, if it is that."""
        settings = len(memory) // len(self)
        mask = (self.batch.source_mask if mask is None else mask).repeat(2 * settings, 1)
        both = memory.unflatten(0, (settings, -1)).repeat(1, 2, 1, 1).flatten(0, 1)
        hidden = self.heads.model.decode(both, mask, self.batch.target_in.repeat(settings, 1))
        return self._odds(hidden, settings)

    def _odds(self, hidden: Tensor, settings: int) -> Tensor:
        target = self.batch.target_out.repeat(settings, 1)
        decisive = target != PAD
        parts = zip(hidden[decisive].split(LOGITS_AT_ONCE), target[decisive].split(LOGITS_AT_ONCE), strict=True)
        exact = torch.promote_types(hidden.dtype, torch.float32)
        output = self.heads.model.output
        found = [F.cross_entropy(output(x).to(exact), y, reduction="none").double() for x, y in parts]
        losses = hidden.new_zeros(target.shape, dtype=torch.float64)
        losses[decisive] = torch.cat(found)
        right, wrong = losses.sum(dim=1).view(settings, 2, -1).unbind(1)
        return wrong - right

    def at_once(self) -> int:
        """Settings of one pass."""
        return max(1, ROW_TOKENS // max(self.batch.source.numel(), self.batch.target_in.numel()))

    def patched(self, chosen: Tensor, values: Values | None = None) -> Tensor:
        """Log-odds [setting, pair] with the outputs of the heads `chosen` [setting, head] replaced; values: by these,
        None: by those of the twin."""
        values = values or (lambda layer, settings: self.twin[layer][None])
        chosen = chosen.to(self.memory.device)
        encoder = torch.tensor([head.kind == "encoder" for head in self.heads.names], device=chosen.device)
        touched = (chosen & encoder).any(dim=1)
        odds = self.odds.repeat(len(chosen), 1)
        for changed in (False, True):
            for settings in (touched == changed).nonzero()[:, 0].split(self.at_once()):
                if not len(settings):
                    continue
                with self.heads.edited(self._replacing(chosen[settings], values, settings)):
                    count = len(settings)
                    memory = self.encoded(self.batch.source.repeat(count, 1)) if changed else None
                    odds[settings] = self.decoded(self.memory.repeat(count, 1, 1) if memory is None else memory)
        return odds

    def _replacing(self, chosen: Tensor, values: Values, settings: Tensor) -> dict[Layer, Edit]:
        by_layer = {layer: chosen[:, self.heads.columns(layer)] for layer in self.heads.layers}
        return {layer: replacing(own, values(layer, settings)) for layer, own in by_layer.items() if bool(own.any())}


def replacing(chosen: Tensor, values: Tensor) -> Edit:
    """Replace the outputs of the heads `chosen` [setting, head] of a layer by values that fit [setting, row, head,
    query, d_head]."""

    def edit(output: Tensor) -> Tensor:
        by_setting = output.unflatten(0, (len(chosen), -1))
        return torch.where(chosen[:, None, :, None, None], values.to(output.dtype), by_setting).flatten(0, 1)

    return edit


def each_head(heads: Heads) -> Tensor:
    """Settings [head + layer, head]: each head alone, then the heads of each layer together."""
    alone = torch.eye(len(heads), dtype=torch.bool)
    layers = [alone[heads.columns(layer)].any(dim=0) for layer in heads.layers]
    return torch.cat([alone, torch.stack(layers)])


@torch.inference_mode()
def twin_effects(heads: Heads, pairs: TwinPairs, chosen: Tensor, progress: Progress | None = None) -> Arrays:
    """Log-odds in nats, float64: base, twin [pair] of the sentence and of its twin; patched [setting, pair] with the
    twin's outputs of the heads `chosen` [setting, head]; memory [pair] with the twin's whole encoder output at the
    aligned tokens, the most that the encoder's heads can do."""
    found = {name: np.zeros(len(pairs)) for name in ("base", "twin", "memory")}
    found["patched"] = np.zeros((len(chosen), len(pairs)))
    for rows, batch in pairs.batches():
        runs = Twins(heads, batch)
        found["base"][rows], found["twin"][rows] = runs.odds.cpu(), runs.twin_odds.cpu()
        found["memory"][rows] = runs.decoded(runs.twin_memory)[0].cpu()
        found["patched"][:, rows] = runs.patched(chosen).cpu()
        if progress is not None:
            progress(len(rows))
    return found


def twins(analysis: Analysis, progress: Progress) -> Arrays:
    """Effects of the twin's output of each head: arrays base, twin, memory [pair], patched [head, pair], layers [layer,
    pair] (all heads of a layer at once), see `twin_effects`; head, layer: their names; row, phenomenon, grade [pair];
    same_length [pair]: whether both sources have as many tokens."""
    heads, test = analysis.heads, analysis.test
    numbers = np.arange(len(test.tested))
    pairs = twin_pairs(analysis.run, test, numbers)
    found = twin_effects(heads, pairs, each_head(heads), progress)
    patched = found.pop("patched")
    return {
        **found,
        "patched": patched[: len(heads)],
        "layers": patched[len(heads) :],
        "head": heads.labels,
        "layer": np.array([str(layer) for layer in heads.layers]),
        "same_length": pairs.source.lengths == pairs.twin.lengths,
        **test.labels,
    }


TWINS = Part(
    "twins",
    "each head patched with its output for the twin",
    twins,
    steps=lambda analysis: len(analysis.test.tested),
    gold=True,
    lacks=lacks_source,
)
