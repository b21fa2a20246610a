"""Are heads the same from seed to seed? Replication of their effects over runs, against effects dealt at random.

python scripts/findings/stability.py collect FOLDER NAME=RUNS...   measured runs to docs/results/FOLDER
python scripts/findings/stability.py alarms                        simulates studies of the kept runs without an effect
"""

import sys
from collections.abc import Sequence
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import Estimate, jackknife, keep, kept, points, rendered, runs_of
from numpy.typing import NDArray
from scipy import stats

from headcount.heads.effects import FILE, read_parts
from headcount.heads.replication import assigned, half
from headcount.heads.statistics import pair_scores

QUESTION = "stability"
DEALT = 100  # times that effects are dealt anew for each pair of runs
Floats = NDArray[np.float64]


def measured(directory: Path) -> pd.DataFrame:
    """Mean harm of each head of a run to each phenomenon, on both halves of the pairs: to the margin in nats (harm; the
    whole model's: whole), and to accuracy (points)."""
    arrays = read_parts(directory / "heads" / FILE)["ablation"]
    rows = []
    for number in (0, 1):
        own = half(arrays, number)
        scores = {name: pair_scores(own, "zero", name) for name in ("margin", "accuracy")}
        for phenomenon in np.unique(own["phenomenon"]):
            means = {name: each[:, own["phenomenon"] == phenomenon].mean(axis=1) for name, each in scores.items()}
            harm, points = (each[0] - each[1:] for each in means.values())
            table = {"head": own["head"], "phenomenon": phenomenon, "half": number, "harm": harm, "points": points}
            rows.append(pd.DataFrame(table | {"whole": means["margin"][0]}))
    return pd.concat(rows)


def collect(words: Sequence[str]) -> pd.DataFrame:
    """The effects of all measured runs, by condition and run, see `runs_of`."""
    found = [measured(path).assign(condition=name, run=seed) for name, seed, path in runs_of(words)]
    return pd.concat(found)[["condition", "run", "head", "phenomenon", "half", "harm", "points", "whole"]]


def profiles(effects: pd.DataFrame, sizes: bool = True) -> tuple[Floats, NDArray]:
    """Harm over its root mean square in the run, by phenomenon, [run, half, head, phenomenon], and the sublayer of each
    head. sizes: without them, less the mean of each head over phenomena."""
    table = effects.pivot_table(index=["run", "half", "head"], columns="phenomenon", values="harm", sort=True)
    runs, halves, heads = (table.index.get_level_values(name).unique() for name in ("run", "half", "head"))
    values = table.to_numpy().reshape(len(runs), len(halves), len(heads), -1)
    scale = np.sqrt((values**2).mean(axis=(1, 2), keepdims=True))
    values = values / np.maximum(scale, 1e-12)
    values = values if sizes else values - values.mean(axis=-1, keepdims=True)
    return values, np.array([head.partition(".")[0] for head in heads])


def agreement(values: Floats) -> float:
    """The cosine of the effects of a run on both halves of the pairs, mean over runs; values: see `replication`."""
    products, norms = (values[:, 0] * values[:, 1]).sum(axis=(1, 2)), np.linalg.norm(values, axis=(2, 3)).prod(axis=1)
    return float((products / norms).mean())


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


def replication(values: Floats, random: np.random.Generator, times: int = DEALT) -> tuple[Floats, Floats]:
    """Similarity of the heads of one sublayer, and its mean with effects dealt at random, [run, run], symmetric;
    values: [run, half, head, phenomenon]."""
    found, null = np.zeros((2, len(values), len(values)))
    for i, j in combinations(range(len(values)), 2):
        found[i, j] = found[j, i] = similarity(values[i], values[j])
        null[i, j] = null[j, i] = similarity(values[i], dealt(values[j], random, times)).mean()
    return found, null


def mean_of_pairs(values: Floats) -> tuple[Floats, float]:
    """The mean over pairs of runs without each run, and of all runs; values [run, run], 0 on the diagonal."""
    runs, total = len(values), values.sum()
    return (total - 2 * values.sum(axis=1)) / ((runs - 1) * (runs - 2)), float(total / (runs * (runs - 1)))


def excesses(effects: pd.DataFrame, sizes: bool = True, seed: int = 0) -> dict[str, tuple[Floats, Floats]]:
    """By sublayer what `replication` gives, observed and dealt, [run, run]. sizes: see `profiles`."""
    values, sublayers = profiles(effects, sizes)
    random = np.random.default_rng(seed)
    return {name: replication(values[:, :, sublayers == name], random) for name in dict.fromkeys(sublayers.tolist())}


def contrast(found: dict[str, tuple[Floats, Floats]], weights: dict[str, float], tests: int) -> Estimate:
    """A weighted sum of the excess similarities of sublayers, jackknifed over runs."""
    excess = sum(weight * (found[name][0] - found[name][1]) for name, weight in weights.items())
    return jackknife(*mean_of_pairs(np.asarray(excess)), tests)


def dealt_runs(values: Floats, sublayers: NDArray, random: np.random.Generator) -> Floats:
    """The profiles of all runs, dealt at random within each sublayer, see `dealt`."""
    found = values.copy()
    for name in np.unique(sublayers):
        own = sublayers == name
        found[:, :, own] = np.stack([dealt(each[:, own], random, 1)[0] for each in values])
    return found


def variance_shares(values: Floats, sublayers: NDArray) -> dict[str, float]:
    """Where the variance of the effects on a phenomenon comes from, over all runs and heads, the mean over phenomena:
    the sublayer; the head within it that recurs, matched on half 0; the head of one run alone; the draw of pairs.
    Shares of half 1."""
    values = values - values.mean(axis=(0, 2), keepdims=True)
    parts = dict.fromkeys(("sublayer", "head that recurs", "head of one run", "draw of pairs"), 0.0)
    for name in np.unique(sublayers):
        of_layer = values[:, :, sublayers == name]
        own = np.stack([matched(of_layer[0], each) for each in of_layer])
        noise = float(((own[:, 0] - own[:, 1]) ** 2).mean() / 2)
        centred = own[:, 1] - own[:, 1].mean(axis=(0, 1))  # [run, head, phenomenon]
        runs = len(centred)
        shared = float(((centred.sum(axis=0) ** 2 - (centred**2).sum(axis=0)) / (runs * (runs - 1))).mean())
        parts["sublayer"] += float((own[:, 1].mean(axis=(0, 1)) ** 2).mean())
        parts["head that recurs"] += shared
        parts["head of one run"] += float((centred**2).mean()) - shared - noise
        parts["draw of pairs"] += noise
    return {name: value / sum(parts.values()) for name, value in parts.items()}


def matched(first: Floats, second: Floats) -> Floats:
    """The heads of the second run in the order of those of the first that they are matched with, by half 0."""
    return second[:, assigned(first[0], second[0], np.zeros(first.shape[1]))[0]]


def places(effects: pd.DataFrame) -> pd.DataFrame:
    """The sublayer that most often has the head with the largest effect on a phenomenon, and the number of runs."""
    means = effects.groupby(["run", "phenomenon", "head"])["harm"].mean().reset_index()
    top = means.loc[means.groupby(["run", "phenomenon"])["harm"].idxmax()]
    counts = top.assign(sublayer=top["head"].str.partition(".")[0]).groupby("phenomenon")["sublayer"].value_counts()
    return counts.reset_index().drop_duplicates("phenomenon")


def false_alarms(effects: pd.DataFrame, studies: int = 300) -> dict[str, float]:
    """Share of studies in percent, with effects dealt at random within sublayers, in which an interval excludes 0: of
    any sublayer, and of the difference of two groups of runs."""
    values, sublayers = profiles(effects)
    random, half_ = np.random.default_rng(0), len(values) // 2
    alarms = dict.fromkeys(("any sublayer", "two groups"), 0)
    for _ in range(studies):
        own, found = dealt_runs(values, sublayers, random), []
        for name in np.unique(sublayers):
            observed, null = replication(own[:, :, sublayers == name], random, times=20)
            found.append(observed - null)
        of_runs = [jackknife(*mean_of_pairs(each), tests=len(found)) for each in found]
        alarms["any sublayer"] += any(each.verdict != "inconclusive" for each in of_runs)
        mean = np.mean(found, axis=0)
        first, second = (mean_of_pairs(mean[part, part]) for part in (slice(half_), slice(half_, 2 * half_)))
        alarms["two groups"] += difference(first, second).verdict != "inconclusive"
    return {name: 100 * count / studies for name, count in alarms.items()}


def difference(first: tuple[Floats, float], second: tuple[Floats, float], tests: int = 1) -> Estimate:
    """The first group of runs less the second, each jackknifed; degrees of freedom by Welch and Satterthwaite."""
    pseudo = [len(each) * whole - (len(each) - 1) * each for each, whole in (first, second)]
    result = stats.ttest_ind(*pseudo, equal_var=False)
    low, high = result.confidence_interval(1 - 0.05 / tests)
    value, shift = first[1] - second[1], float(pseudo[0].mean() - pseudo[1].mean())
    return Estimate(value, float(low) + value - shift, float(high) + value - shift, float(result.pvalue))


def contrasts(found: dict[str, dict[str, tuple[Floats, Floats]]]) -> dict[str, Estimate]:
    """The four contrasts of the design, and a further one without a part in their intervals. found: `excesses` of each
    condition."""
    kinds = {name: 1 / 2 if name.startswith("cross") else -1 / 4 for name in found["default"]}
    depth = {name: 1 / 6 if name[-1] in "23" else -1 / 6 for name in found["tatoeba"]}
    whole = {
        name: mean_of_pairs(np.mean([observed - null for observed, null in own.values()], axis=0))
        for name, own in found.items()
    }
    return {
        "cross-attention less self-attention": contrast(found["default"], kinds, 4),
        "weight decay 0.1 less 0.0001": difference(whole["decay_0.1"], whole["ten"], 4),
        "Tatoeba: layers 2 and 3 less 1 and 4": contrast(found["tatoeba"], depth, 4),
        "Tatoeba: weight decay 0.1 less the recipe's": difference(whole["tatoeba_0.1"], whole["tatoeba"], 4),
        "weight decay 0.01 less 0.0001 (beside the four)": difference(whole["decay_0.01"], whole["ten"]),
    }


def figures(effects: pd.DataFrame, alarms: pd.Series) -> dict[str, Any]:
    """What the page says. alarms: of `false_alarms`."""
    tables = dict(list(effects.groupby("condition")))
    default, tables["ten"] = tables["default"], tables["default"][tables["default"]["run"] <= 10]
    found = {sizes: {name: excesses(table, sizes) for name, table in tables.items()} for sizes in (True, False)}
    values, sublayers = profiles(default)
    random, variance = np.random.default_rng(0), variance_shares(values, sublayers)
    by_chance = [variance_shares(dealt_runs(values, sublayers, random), sublayers) for _ in range(20)]
    both = {sizes: contrasts(own) for sizes, own in found.items()}
    return {
        "sublayers": {
            name: {
                "observed": mean_of_pairs(pairs[0])[1],
                "dealt": mean_of_pairs(pairs[1])[1],
                "excess": jackknife(*mean_of_pairs(pairs[0] - pairs[1]), tests=6),
                "halves": agreement(values[:, :, sublayers == name]),
            }
            for name, pairs in found[True]["default"].items()
        },
        "contrasts": {name: (each, both[False][name]) for name, each in both[True].items()},
        "variance": variance,
        "chance": float(np.mean([each["head that recurs"] for each in by_chance])),
        "places": places(default),
        "runs": default["run"].nunique(),
        "alarms": alarms,
    }


def all_effects() -> pd.DataFrame:
    """The kept effects, with those of the default runs that are kept as docs/results/heads."""
    known = kept("heads").query("condition == '4'").assign(condition="default")
    return pd.concat([known, kept(QUESTION)])


def page() -> tuple[str, str]:
    """The page and its picture, from the kept effects."""
    found = figures(all_effects(), kept(QUESTION, "alarms").iloc[0])
    rows = [
        {"sublayer": name, "series": series, "value": row[series], "low": row[series], "high": row[series]}
        for name, row in found["sublayers"].items()
        for series in ("observed", "dealt")
    ]
    data = pd.DataFrame(rows)
    return rendered(f"{QUESTION}.md.jinja", **found), points(
        data, "sublayer", list(found["sublayers"]), "similarity", "series"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["collect"]:
        keep(sys.argv[2], collect(sys.argv[3:]))
    elif sys.argv[1:2] == ["alarms"]:
        own = all_effects().query("condition == 'default'")
        keep(QUESTION, pd.DataFrame([false_alarms(own)]), "alarms")
