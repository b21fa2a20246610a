"""Are heads the same from seed to seed? Replication of their effects over runs, against effects dealt at random.

python scripts/questions/stability.py collect NAME=SWEEP...   measured runs to docs/results/stability/effects.parquet
python scripts/questions/stability.py                         the page, from that file
"""

import sys
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import pandas as pd
from common import Estimate, jackknife, keep
from numpy.typing import NDArray

from headcount.heads.effects import FILE, read_parts
from headcount.heads.replication import half
from headcount.heads.statistics import pair_scores

QUESTION = "stability"
DEALT = 100  # times that effects are dealt anew for each pair of runs
Floats = NDArray[np.float64]


def measured(directory: Path) -> pd.DataFrame:
    """Mean harm in nats of each head of a run to each phenomenon, on both halves of the pairs; whole: the margin."""
    arrays = read_parts(directory / "heads" / FILE)["ablation"]
    rows = []
    for number in (0, 1):
        own = half(arrays, number)
        margins = pair_scores(own, "zero", "margin")
        for phenomenon in np.unique(own["phenomenon"]):
            means = margins[:, own["phenomenon"] == phenomenon].mean(axis=1)
            table = {"head": own["head"], "phenomenon": phenomenon, "half": number, "harm": means[0] - means[1:]}
            rows.append(pd.DataFrame(table | {"whole": means[0]}))
    return pd.concat(rows)


def collect(sweeps: dict[str, Path]) -> pd.DataFrame:
    """The effects of all measured runs of these sweeps, by name of a condition and by run."""
    found = []
    for condition, sweep in sweeps.items():
        for path in sorted(sweep.glob(f"*/heads/{FILE}")):
            run = path.parents[1].name.rpartition("seed=")[2]
            found.append(measured(path.parents[1]).assign(condition=condition, run=int(run)))
    return pd.concat(found)[["condition", "run", "head", "phenomenon", "half", "harm", "whole"]]


def profiles(effects: pd.DataFrame) -> tuple[Floats, list[str]]:
    """Harm over its root mean square in the run, by phenomenon, [run, half, head, phenomenon], and the sublayer of each
    head."""
    table = effects.pivot_table(index=["run", "half", "head"], columns="phenomenon", values="harm", sort=True)
    runs, halves, heads = (table.index.get_level_values(name).unique() for name in ("run", "half", "head"))
    values = table.to_numpy().reshape(len(runs), len(halves), len(heads), -1)
    scale = np.sqrt((values**2).mean(axis=(1, 2), keepdims=True))
    return values / np.maximum(scale, 1e-12), [head.partition(".")[0] for head in heads]


def similarity(first: Floats, second: Floats) -> Floats:
    """Similarity of the heads of one sublayer in two runs, [...]; profiles [..., half, head, phenomenon]. They are
    matched one to one by half 0; the figure is the cosine of all matched effects on half 1."""
    heads = first.shape[-2]
    orders = np.array(list(permutations(range(heads))))
    chosen, measured_ = (np.einsum("...hp,...kp->...hk", first[..., n, :, :], second[..., n, :, :]) for n in (0, 1))
    sums = chosen[..., np.arange(heads), orders].sum(axis=-1).argmax(axis=-1)
    matched = np.take_along_axis(measured_[..., np.arange(heads), orders].sum(axis=-1), sums[..., None], -1)[..., 0]
    norms = [np.linalg.norm(each[..., 1, :, :], axis=(-2, -1)) for each in (first, second)]
    return np.asarray(matched / np.maximum(norms[0] * norms[1], 1e-12))


def dealt(values: Floats, random: np.random.Generator, times: int) -> Floats:
    """`times` copies of profiles [half, head, phenomenon]; the effects on each phenomenon are permuted over the heads,
    alike on both halves."""
    _, heads, phenomena = values.shape
    order = random.random((times, heads, phenomena)).argsort(axis=1)
    return np.take_along_axis(np.broadcast_to(values, (times, *values.shape)), order[:, None], axis=2)


def replication(values: Floats, random: np.random.Generator) -> tuple[Floats, Floats]:
    """Similarity of the heads of one sublayer, and its mean with effects dealt at random, [run, run], symmetric;
    values: [run, half, head, phenomenon]."""
    found, null = np.zeros((2, len(values), len(values)))
    for i, j in combinations(range(len(values)), 2):
        found[i, j] = found[j, i] = similarity(values[i], values[j])
        null[i, j] = null[j, i] = similarity(values[i], dealt(values[j], random, DEALT)).mean()
    return found, null


def mean_of_pairs(values: Floats) -> tuple[Floats, float]:
    """The mean over pairs of runs without each run, and of all runs; values [run, run], 0 on the diagonal."""
    runs, total = len(values), values.sum()
    return (total - 2 * values.sum(axis=1)) / ((runs - 1) * (runs - 2)), float(total / (runs * (runs - 1)))


def excesses(effects: pd.DataFrame, seed: int = 0) -> dict[str, dict[str, tuple[Floats, float]]]:
    """By sublayer: observed, dealt and excess, each the mean over pairs of runs, without each run and of all."""
    values, sublayers = profiles(effects)
    random, found = np.random.default_rng(seed), {}
    for sublayer in dict.fromkeys(sublayers):
        own = values[:, :, [name == sublayer for name in sublayers]]
        observed, null = replication(own, random)
        pairs = {"observed": observed, "dealt": null, "excess": observed - null}
        found[sublayer] = {name: mean_of_pairs(each) for name, each in pairs.items()}
    return found


def contrast(found: dict[str, dict[str, tuple[Floats, float]]], weights: dict[str, float], tests: int) -> Estimate:
    """A weighted sum of excesses of sublayers, jackknifed over runs."""
    without = sum(weight * found[name]["excess"][0] for name, weight in weights.items())
    return jackknife(np.asarray(without), sum(w * found[name]["excess"][1] for name, w in weights.items()), tests)


if __name__ == "__main__":
    if sys.argv[1:2] == ["collect"]:
        keep(QUESTION, collect({name: Path(path) for name, _, path in (each.partition("=") for each in sys.argv[2:])}))
