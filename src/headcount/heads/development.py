"""Development of heads through training: effects, margins and accuracy at the weights that were kept at some steps.

The half-rise step of a curve is where it is first halfway from its first to its last value. The margin of the whole
model and the effect of the head that matters most in the end share their unit, so their order in time is compared.
"""

import copy
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headcount.heads.ablation import effects, without_each
from headcount.heads.analysis import Analysis, Arrays, part
from headcount.heads.evaluation_set import evaluation_set
from headcount.heads.interface import Heads
from headcount.heads.likelihood import Progress
from headcount.run.opened import load_weights
from headcount.statistics.bootstrap import Floats, resamples
from headcount.statistics.max_t import DRAWS, ERROR

CURVES = ("accuracy", "margin", "effect")


def kept_steps(directory: Path) -> dict[int, Path]:
    """The weights of a run that `checkpoint.keep` kept, by step."""
    found = (directory / "checkpoints").glob("step-*.safetensors")
    steps = {int(match[1]): path for path in found if (match := re.fullmatch(r"step-(\d+)", path.stem))}
    return dict(sorted(steps.items()))


def _lacks(analysis: Analysis) -> str | None:
    why = "needs weights of two steps or more; train with checkpoint.keep, such as checkpoint.keep=[0,100,300,1000]"
    return None if len(kept_steps(analysis.run.directory)) > 1 else why


@part("training", "effects of heads through training", settings=("step_sentences",), lacks=_lacks)
def development(analysis: Analysis, progress: Progress) -> Arrays:
    """Effects of zero ablation at each kept step, on a part of the test sentences: step [step]; loss [step, setting,
    sentence] in nats; right, wrong [step, setting, pair], log-probabilities of both translations. Setting 0 is the
    whole model, setting 1 + head is without that head. Also head, the names, and row, phenomenon and grade of each
    pair."""
    test = evaluation_set(analysis.run, analysis.test.rows, analysis.settings.step_sentences)
    heads, directory, found = Heads(copy.deepcopy(analysis.run.model)), analysis.run.directory, []
    steps = kept_steps(directory)
    for path in steps.values():
        load_weights(heads.model, path, directory)
        found.append(effects(heads, test, without_each(heads), progress=progress))
    arrays = {name: np.stack([each[name] for each in found]).astype(np.float32) for name in ("loss", "right", "wrong")}
    return {**arrays, "step": np.array(list(steps)), **test.labels, "head": heads.labels}


@dataclass(frozen=True)
class Emergence:
    """A phenomenon through training. head: the one whose removal costs most of the margin at the last step. steps
    [step]; accuracy [step] of the whole model in percent; margin [step] in nats; effect [step], the margin that
    removing the head costs, the head chosen on half of the pairs and measured on the other half, both ways. half: the
    half-rise step of each curve with its 95 % bootstrap interval over pairs, NaN where a curve does not rise: the
    interval of its last less its first value holds 0. first: which of margin and effect, both in nats, rises first,
    "inconclusive" if the interval of the difference, which holds for all phenomena at once, holds 0. Accuracy is not
    compared: it is bounded, and rises early for that alone."""

    phenomenon: str
    head: str
    steps: NDArray[np.int64]
    accuracy: Floats
    margin: Floats
    effect: Floats
    half: dict[str, tuple[float, float, float]]
    first: str


def emergence(arrays: Arrays, draws: int = DRAWS, seed: int = 0) -> list[Emergence]:
    """Curves and half-rise steps of all phenomena, from the arrays of `development`."""
    names = np.unique(arrays["phenomenon"])
    return [_emerges(arrays, str(name), draws, seed, ERROR / len(names)) for name in names]


def _emerges(arrays: Arrays, phenomenon: str, draws: int, seed: int, error: float) -> Emergence:
    inside = arrays["phenomenon"] == phenomenon
    margins = (arrays["right"] - arrays["wrong"])[:, :, inside].astype(np.float64)  # [step, setting, pair]
    costs, pairs = margins[:, :1] - margins[:, 1:], margins.shape[2]
    sides = np.random.default_rng(seed).permutation(pairs) % 2
    chosen = [int(costs[-1][:, sides != side].sum(axis=1).argmax()) for side in (0, 1)]
    effects_ = np.where(sides, costs[:, chosen[1]], costs[:, chosen[0]])
    curves = np.stack([100.0 * (margins[:, 0] > 0), margins[:, 0], effects_])
    weights = np.concatenate([np.ones((1, pairs)), resamples(pairs, draws, seed)])
    means = np.einsum("dp,csp->cds", weights, curves) / pairs  # [curve, draw, step]
    steps = arrays["step"].astype(np.float64)
    rises = np.quantile(means[:, 1:, -1] - means[:, 1:, 0], ERROR / 2, axis=1) > 0
    halves = np.stack([half_rise(steps, curve) for curve in means])  # [curve, draw]
    halves[~rises] = np.nan
    half = {name: _interval(values) for name, values in zip(CURVES, halves, strict=True)}
    accuracy, margin, effect = means[:, 0]
    _, low, high = _interval(np.log1p(halves[2]) - np.log1p(halves[1]), error)
    first = "effect" if high < 0 else "margin" if low > 0 else "inconclusive"
    head = int(costs[-1].mean(axis=1).argmax())
    return Emergence(phenomenon, str(arrays["head"][head]), arrays["step"], accuracy, margin, effect, half, first)


def half_rise(steps: Floats, curves: Floats) -> Floats:
    """The step at which each curve [draw, step] is first halfway from its first to its last value, interpolated over
    log(1 + step), [draw]; NaN for a curve that does not rise."""
    level = (curves[:, :1] + curves[:, -1:]) / 2
    above = curves >= level
    above[:, 0] = False
    after = np.maximum(above.argmax(axis=1), 1)
    rows, x = np.arange(len(curves)), np.log1p(steps)
    low, high = curves[rows, after - 1], curves[rows, after]
    rises = curves[:, -1] > curves[:, 0]
    share = np.divide(level[:, 0] - low, high - low, out=np.zeros_like(low), where=rises)
    return np.where(rises, np.expm1(x[after - 1] + share * (x[after] - x[after - 1])), np.nan)


def _interval(values: Floats, error: float = ERROR) -> tuple[float, float, float]:
    """The estimate, and the ends of the bootstrap interval; NaN unless almost all draws have a value."""
    low, high = np.nan, np.nan
    if np.isnan(values[1:]).mean() <= ERROR / 2:
        low, high = np.nanquantile(values[1:], [error / 2, 1 - error / 2]).tolist()
    return float(values[0]), low, high
