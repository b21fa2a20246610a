"""Self-repair: do later heads make up for a head that is off? And is what a head loses information or a bias?

    python scripts/findings/repair.py collect NAME=RUNS...   measured runs to docs/results/repair/*.parquet

McGrath et al. 2023, "The Hydra effect" (arXiv 2307.15771); Rushing and Nanda 2024 (arXiv 2402.15390).
"""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from common import Estimate, add, alarm_rate, kept, over_runs, planned, points, rendered, runs_of

from headcount import open_run
from headcount.data.batches import Sentences
from headcount.heads.ablation import effects, without_each
from headcount.heads.analysis import Arrays
from headcount.heads.door import Run
from headcount.heads.effects import FILE, read_parts
from headcount.heads.evaluation_set import EvaluationSet, evaluation_set, select
from headcount.heads.interface import Heads, Layer, heads_named
from headcount.heads.likelihood import batch_log_probs, batches
from headcount.heads.statistics import LOSS, pair_scores

QUESTION = "repair"
ALL = "all phenomena"
TEST = 800  # sentences
CONDITIONS = {
    "250": "after 250 steps",
    "500": "after 500",
    "1000": "after 1,000",
    "default": "at the end (averaged)",
    "head_dropout": "head dropout 0.1",
}


def halves(phenomena: np.ndarray) -> np.ndarray:
    """0 or 1 for each pair, in turn within its phenomenon."""
    found = np.zeros(len(phenomena), dtype=np.int64)
    for name in np.unique(phenomena):
        own = np.flatnonzero(phenomena == name)
        found[own] = np.arange(len(own)) % 2
    return found


def repairable(heads: Heads) -> list[int]:
    """The heads of the decoder that have heads behind them: all but those of the last cross-attention."""
    last = max(head.layer for head in heads.names if head.kind == "cross")
    return [n for n, head in enumerate(heads.names) if head.kind != "encoder" and head.place != Layer("cross", last)]


@torch.inference_mode()
def direct(heads: Heads, source: Sentences, target: Sentences, off: list[int]) -> np.ndarray:
    """Log-probability of each target in nats, [1 + head, sentence], float64: of the whole model, and with the output of
    each head at zero while all other heads keep the outputs that they have in the whole model."""
    found = np.zeros((1 + len(off), len(target.lengths)))
    for rows, batch in batches(heads, source, target):
        with heads.recorded() as records:
            found[0, rows] = batch_log_probs(heads, batch).double().sum(dim=1).cpu()
        for number, head in enumerate(off, start=1):
            gates = heads.gates_off([head])
            edits = {layer: partial(_frozen, each[0], gates[heads.columns(layer)]) for layer, each in records.items()}
            with heads.edited(edits):
                found[number, rows] = batch_log_probs(heads, batch).double().sum(dim=1).cpu()
    return found


def _frozen(outputs: torch.Tensor, gates: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return outputs * gates[:, None, None]


def zeroed(run: Run, test: EvaluationSet) -> pd.DataFrame:
    """Mean harm in nats without each head, by phenomenon (of the margin) and for the loss, by half of the pairs or
    sentences: direct, all other heads as they were; total, all free."""
    heads, source = Heads(run.model), select(test.source, test.tested)
    off = repairable(heads)
    free = effects(heads, test, without_each(heads))
    margins = {"total": (free["right"] - free["wrong"])[[0, *(1 + n for n in off)]]}
    right = direct(heads, source, select(test.target, test.tested), off)
    margins["direct"] = right - direct(heads, source, test.contrast, off)
    losses = {"total": -free["loss"][[0, *(1 + n for n in off)]]}
    losses["direct"] = direct(heads, select(test.source, test.own), select(test.target, test.own), off)
    names, rows = test.labels["phenomenon"], []
    groups = [(name, margins, names == name, halves(names)) for name in np.unique(names)]
    whole = np.ones(len(test.own), dtype=bool)
    for name, scores, inside, side in [*groups, (LOSS, losses, whole, halves(whole))]:
        for number in (0, 1):
            own = inside & (side == number)
            harm = {key: (each[0] - each[1:])[:, own].mean(axis=1) for key, each in scores.items()}
            rows.append(pd.DataFrame({"head": heads.labels[off], "phenomenon": name, "half": number} | harm))
    return pd.concat(rows)


def taken(run: Run, test: EvaluationSet, most: int = 100) -> pd.DataFrame:
    """What each later head adds to the logits of the reference beyond what it adds in the whole model, where a head is
    off, by half of the sentences: a row for each head off and head behind it, in logits a sentence. The last norm keeps
    the scale that it has in the whole model, so that a change is one of outputs (see `Run.logit_attribution`)."""
    rows = test.rows.select(test.own[:most])
    pairs = list(zip(rows["source"], rows["target"], strict=True))
    whole, found = [run.logit_attribution(*pair) for pair in pairs], []
    own = np.stack([each.sum("token").to_numpy() for each in whole])  # [sentence, head]
    for number in repairable(run.heads):
        with run.heads.off(number):
            without = [run.logit_attribution(*pair) for pair in pairs]
        scales = [(then["scale"] / each["scale"]).to_numpy() for then, each in zip(whole, without, strict=True)]
        same_scale = [each * scale for each, scale in zip(without, scales, strict=True)]
        change = np.stack([each.sum("token").to_numpy() for each in same_scale]) - own
        for half in (0, 1):
            means = {"gain": change[half::2].mean(axis=0), "adds": own[half::2].mean(axis=0)}
            table = pd.DataFrame({"receiver": whole[0]["head"].to_numpy(), "half": half} | means)
            found.append(table.assign(off=str(run.heads.names[number])))
    return pd.concat(found)


def lost(arrays: Arrays) -> pd.DataFrame:
    """Points lost without the head that costs most accuracy in a phenomenon, chosen on one half of the pairs and
    measured on the other, both ways: accuracy, sensitivity."""
    scores = {name: pair_scores(arrays, "zero", name) for name in ("accuracy", "sensitivity")}
    known, side, rows = np.isfinite(scores["sensitivity"]).all(axis=0), halves(arrays["phenomenon"]), []
    for name in np.unique(arrays["phenomenon"][known]):
        for number in (0, 1):
            own = (arrays["phenomenon"] == name) & known
            costs = {key: each[:1] - each[1:] for key, each in scores.items()}
            head = int(costs["accuracy"][:, own & (side == number)].mean(axis=1).argmax())
            points = {key: float(each[head, own & (side != number)].mean()) for key, each in costs.items()}
            rows.append({"phenomenon": name, "head": arrays["head"][head], "half": number} | points)
    return pd.DataFrame(rows)


def collect(words: Sequence[str]) -> None:
    """Keep the tables of measured runs, by condition and run, see `runs_of`; a condition that is a number is that step
    of the runs, whose weights they kept."""
    for condition, seed, directory in runs_of(words):
        step = f"checkpoints/step-{condition}.safetensors" if condition.isdigit() else None
        run = open_run(directory, checkpoint=directory / step if step else None)
        test = evaluation_set(run, run.data().one_way["test"], TEST)
        found = {"zeroed": zeroed(run, test)}
        if not step:
            found |= {"taken": taken(run, test), "lost": lost(read_parts(directory / "heads" / FILE)["ablation"])}
        for name, table in found.items():
            add(QUESTION, table.assign(condition=condition, run=seed), ["condition", "run"], name)


def repaired(table: pd.DataFrame) -> pd.DataFrame:
    """By run and phenomenon, and for all phenomena: the direct effect less the total one as a share of the direct one,
    over the heads whose direct effect is above 0 on the other half of the pairs."""
    keys = ["run", "head", "phenomenon"]
    wide = table.pivot_table(index=keys, columns="half", values=["direct", "total"])
    sums = []
    for chosen, measured in ((0, 1), (1, 0)):
        own = wide[wide["direct", chosen] > 0]
        sums.append(pd.DataFrame({name: own[name, measured] for name in ("direct", "total")}))
    both = pd.concat(sums).groupby(["run", "phenomenon"]).sum().reset_index()
    every = both[both["phenomenon"] != LOSS].groupby("run")[["direct", "total"]].sum().reset_index()
    both = pd.concat([both, every.assign(phenomenon=ALL)])
    return both.assign(share=1 - both["total"] / both["direct"]).pivot(
        index="run", columns="phenomenon", values="share"
    )


def takers(table: pd.DataFrame) -> dict[str, Estimate]:
    """By sublayer: what its heads add to the logits of the reference beyond what they add in the whole model, over what
    the head that is off adds there. Sums over the heads that add something on one half of the sentences, measured on
    the other, both ways; mean over runs."""
    names = {column: heads_named(table[column]) for column in ("off", "receiver")}
    order = {Layer("decoder", 1): 0, Layer("cross", 1): 1, Layer("decoder", 2): 2, Layer("cross", 2): 3}
    places = {column: [order[head.place] for head in heads] for column, heads in names.items()}
    own = table[table["off"] == table["receiver"]].pivot(index=["run", "off"], columns="half", values="adds")
    behind = table[np.array(places["receiver"]) > np.array(places["off"])]
    lost_ = own.loc[pd.MultiIndex.from_frame(behind[["run", "off"]])].to_numpy()  # [row, half]
    half = behind["half"].to_numpy()
    place = np.arange(len(half))
    behind = behind.assign(sublayer=behind["receiver"].str.partition(".")[0], lost=lost_[place, half])
    of_off = behind[lost_[place, 1 - half] > 0].groupby(["run", "sublayer", "half", "off"])
    sums = of_off.agg({"gain": "sum", "lost": "first"}).groupby(level=["run", "sublayer"]).sum()
    shares = (sums["gain"] / sums["lost"]).unstack()
    return {name: over_runs(shares[name], shares.shape[1]) for name in shares}


def information(accuracy: pd.Series, sensitivity: pd.Series) -> dict[str, Any]:
    """Points of accuracy and of sensitivity that are lost, and whether the latter is surely above half of the former
    (for eight phenomena at once), where accuracy is surely lost."""
    found: dict[str, Any] = {"accuracy": over_runs(accuracy), "sensitivity": over_runs(sensitivity)}
    above = over_runs(sensitivity - accuracy / 2, 8)
    verdict = "information" if above.low > 0 else "bias" if above.high < 0 else "undecided"
    return found | {"verdict": verdict if found["accuracy"].low > 0 else "no loss"}


def figures(zeroed: pd.DataFrame, taken: pd.DataFrame, lost: pd.DataFrame) -> dict[str, Any]:
    """What the page says, but for its first sentence."""
    shares = {name: repaired(own) for name, own in zeroed.groupby("condition")}
    contrasts = {
        "repair": shares["default"][LOSS],
        "with head dropout less without": shares["head_dropout"][LOSS] - shares["default"][LOSS],
        "after 250 steps less after 1,000": shares["250"][LOSS] - shares["1000"][LOSS],
    }
    points = lost[lost["condition"] == "default"].groupby(["run", "phenomenon"])[["accuracy", "sensitivity"]].mean()
    both = {name: points[name].unstack() for name in ("accuracy", "sensitivity")}
    return {
        "conditions": list(CONDITIONS.values()),
        "shares": {
            name: {CONDITIONS[key]: over_runs(each[name]).show() for key, each in shares.items()}
            for name in [LOSS, ALL, *sorted(set(shares["default"]) - {LOSS, ALL})]
        },
        "tests": planned(contrasts),
        "takers": takers(taken[taken["condition"] == "default"]),
        "lost": {name: information(both["accuracy"][name], both["sensitivity"][name]) for name in both["accuracy"]},
        "alarms": alarm_rate(contrasts.values()),
    }


def page() -> tuple[str, str]:
    """The page and its picture, from the kept effects."""
    zeroed_ = kept(QUESTION, "zeroed")
    found = figures(zeroed_, kept(QUESTION, "taken"), kept(QUESTION, "lost"))
    rows = [
        {"task": name, "condition": CONDITIONS[key], **over_runs(each[name])._asdict()}
        for key, each in ((key, repaired(own)) for key, own in zeroed_.groupby("condition"))
        for name in each
    ]
    picture = points(pd.DataFrame(rows), "task", list(found["shares"]), "share of the direct harm", "condition")
    return rendered(f"{QUESTION}.md.jinja", **found), picture


if __name__ == "__main__":
    if sys.argv[1:2] == ["collect"]:
        collect(sys.argv[2:])
