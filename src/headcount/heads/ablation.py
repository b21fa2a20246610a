"""Ablation: what is lost without a head.

Three kinds. Zero: the head's output is 0 (Michel et al. 2019), which the model has never met. Mean: it is the head's
mean over random tokens of validation sentences. Resample: it is the head's output at one of these tokens, another one
for each position (Chan et al. 2022 take the outputs of another sentence, whose order stays).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headcount.data.batches import Sentences
from headcount.data.tokenizer import PAD
from headcount.heads.analysis import Analysis, Arrays, part
from headcount.heads.evaluation_set import EvaluationSet, select
from headcount.heads.interface import Heads, Layer
from headcount.heads.likelihood import Fill, Progress, TokenLogProbs, batches, token_log_probs

KINDS = ("zero", "mean", "resample", "only")
BANK = 4096  # outputs of each head that resampling draws from


def gates_off(heads: Heads, settings: Iterable[Sequence[int]]) -> Tensor:
    """Gates [setting, head] from the numbers of the heads that are off in each setting."""
    rows = [
        heads.gates().index_fill(0, torch.tensor(off, dtype=torch.long).to(heads.model.device), 0) for off in settings
    ]
    return torch.stack([heads.gates(), *rows])[1:]


def without_each(heads: Heads) -> Tensor:
    """Gates [1 + head, head]: all heads on, then each head alone off."""
    return gates_off(heads, [[], *([number] for number in range(len(heads)))])


def only_each(heads: Heads) -> Tensor:
    """Gates [head, head]: of each head's layer that head alone on, all other layers whole (Michel et al. 2019, table
    2)."""
    layers = [range(len(heads))[heads.columns(head.place)] for head in heads.names]
    return gates_off(heads, [[other for other in layer if other != own] for own, layer in enumerate(layers)])


@dataclass(frozen=True)
class Bank:
    """Outputs of every head at many tokens, [head, token, d_head] a layer."""

    outputs: dict[Layer, Tensor]

    def mean(self, layer: Layer, output: Tensor) -> Tensor:
        """A `Fill` with the mean output of each head."""
        return self.outputs[layer].mean(dim=1)[None, :, None, :]

    def resampled(self, seed: int) -> Fill:
        """A `Fill` with outputs at random tokens, drawn anew at each call."""
        generator = torch.Generator().manual_seed(seed)

        def fill(layer: Layer, output: Tensor) -> Tensor:
            bank = self.outputs[layer]
            shape = (len(output), output.shape[2])  # batch, query
            drawn = torch.randint(bank.shape[1], shape, generator=generator).to(bank.device)
            return bank[:, drawn].transpose(0, 1)  # [batch, head, query, d_head]

        return fill


@torch.inference_mode()
def bank(heads: Heads, source: Sentences, target: Sentences, seed: int = 0) -> Bank:
    """Outputs of all heads at random tokens of these sentences."""
    kept: dict[Layer, list[Tensor]] = {layer: [] for layer in heads.layers}
    for _, batch in batches(heads, source, target):
        with heads.recorded() as records:
            heads.model(batch.source, batch.source_mask, batch.target_in)
        for layer, (output,) in records.items():
            real = batch.source_mask if layer.kind == "encoder" else batch.target_out.ne(PAD)
            kept[layer].append(output.transpose(0, 1)[:, real])
    generator = torch.Generator().manual_seed(seed)
    outputs = {}
    for layer, parts in kept.items():
        whole = torch.cat(parts, dim=1)
        outputs[layer] = whole[:, torch.randperm(whole.shape[1], generator=generator)[:BANK].to(whole.device)]
    return Bank(outputs)


def effects(
    heads: Heads, test: EvaluationSet, gates: Tensor, fill: Fill | None = None, progress: Progress | None = None
) -> Arrays:
    """Log-probabilities in nats under each row of `gates` [setting, head]: what all parts of settings measure.

    off [setting]: the heads whose gate is 0, joined by "+". reference [setting, token]: of the tokens of the
    references; lengths [sentence]: tokens of each; loss [setting, sentence], float64; all three of the corpus's own
    sentences. right, wrong [setting, pair]: of the right and of the wrong translation of each pair.
    """

    def scored(source: Sentences, target: Sentences) -> TokenLogProbs:
        return token_log_probs(heads, source, target, gates, fill, progress)

    source, own = select(test.source, test.tested), len(test.own)
    reference = scored(select(test.source, test.own), select(test.target, test.own))
    of_files = test.tested[test.tested >= own]
    right = reference.sums[:, test.tested[test.tested < own]]
    if len(of_files):
        others = scored(select(test.source, of_files), select(test.target, of_files)).sums
        right = np.concatenate([right, others], axis=1)
    wrong = scored(source, test.contrast).sums
    off = np.array(["+".join(heads.labels[row]) for row in (gates == 0).cpu().numpy()])
    found = {"off": off, "reference": reference.values, "lengths": reference.lengths, "loss": -reference.sums}
    return {**found, "right": right, "wrong": wrong}


@part(
    "ablation",
    "each head switched off in turn",
    version=2,
    steps=lambda analysis: 4 * (len(analysis.test) + len(analysis.test.tested)) + 2 * len(analysis.test.twinned),
)
def ablation(analysis: Analysis, progress: Progress) -> Arrays:
    """Effects of switching each head off, in three ways, and of leaving each alone in its layer: arrays KIND.reference
    and so on, see `effects`, for KIND in zero, mean, resample and only. Setting 0 of the first three is the whole
    model; setting 1 + head is without that head. zero.twin_right, zero.twin_wrong [setting, pair]: of the same two
    translations, of the twin, NaN for a pair without one. Also head, the names, and row, phenomenon and grade of each
    pair."""
    heads, test, valid = analysis.heads, analysis.test, analysis.own_valid
    outputs, without = bank(heads, valid.source, valid.target, analysis.settings.seed), without_each(heads)
    fills = {"zero": None, "mean": outputs.mean, "resample": outputs.resampled(analysis.settings.seed)}
    found = {kind: effects(heads, test, without, fill, progress) for kind, fill in fills.items()}
    found["only"] = effects(heads, test, only_each(heads), None, progress)
    arrays = {f"{kind}.{name}": value for kind, each in found.items() for name, value in each.items()}
    for name, target in (("twin_right", select(test.target, test.tested)), ("twin_wrong", test.contrast)):
        arrays[f"zero.{name}"] = np.full((len(without), len(test.tested)), np.nan)
        of_twins = token_log_probs(heads, test.twin, select(target, test.twinned), without, None, progress).sums
        arrays[f"zero.{name}"][:, test.twinned] = of_twins
    return {**arrays, **test.labels, "head": heads.labels}
