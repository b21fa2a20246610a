"""A gate for each head, read from the data: what it is worth, and whether it shows which heads matter.

    python scripts/findings/head_gate.py collect NAME=RUNS...   measured runs to docs/results/head_gate/*.parquet

Qiu et al. 2025, "Gated attention for large language models" (arXiv 2505.06708).
"""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from common import alarm_rate, bleu, counts_of, keep, kept, over_runs, planned, points, rendered, runs_of
from scipy import stats

from headcount import open_run
from headcount.heads.analysis import Arrays
from headcount.heads.door import Run
from headcount.heads.effects import FILE, read_parts
from headcount.heads.evaluation_set import evaluation_set
from headcount.heads.importance import harms
from headcount.heads.interface import KINDS
from headcount.heads.roles import MEASURES
from headcount.heads.statistics import LOSS
from headcount.statistics.bootstrap import bleu_of

QUESTION = "head_gate"
TEST = 800  # sentences
GATED = ("head", "element")
CAPTIONS = "multi30k_"  # what the names of conditions on Multi30k begin with


def attended(arrays: Arrays) -> pd.DataFrame:
    """Share of attention of each head on the end of the source (or the beginning of the target) and on punctuation."""
    kinds = [KINDS.index(kind) for kind in arrays["kind"]]
    queries = arrays["queries"].sum(axis=0, dtype=np.int64)[kinds]
    sums = arrays["measures"].astype(np.float64).sum(axis=0)
    shares = {name: sums[:, MEASURES.index(name)] / queries for name in ("rest", "punctuation")}
    return pd.DataFrame({"head": arrays["head"], **shares})


def gates(run: Run, ablated: Arrays) -> pd.DataFrame:
    """Mean gate of each head on the sentences of each phenomenon and on all of them (loss), with the harm of removing
    the head to the margin of the phenomenon and to the loss."""
    test = evaluation_set(run, run.data().one_way["test"], TEST)
    phenomenon = np.array(test.rows["phenomenon"])
    means = []
    for kind in KINDS:
        found = run.attention(list(test.rows["source"]), list(test.rows["target"]), kind)["gate"].mean("query")
        means.append(found.to_numpy())  # [sentence, head]
    each, rows = np.concatenate(means, axis=1), []
    for name in [LOSS, *np.unique(phenomenon[phenomenon != ""])]:
        own = np.ones(len(each), dtype=bool) if name == LOSS else phenomenon == name
        table = {
            "head": run.heads.labels,
            "task": name,
            "gate": each[own].mean(axis=0),
            "harm": harms(ablated, name).mean(axis=1),
        }
        rows.append(pd.DataFrame(table))
    return pd.concat(rows)


def collect(words: Sequence[str]) -> dict[str, pd.DataFrame]:
    """The tables of all runs, by condition and run, see `runs_of`: BLEU of each, and gates and attention of those that
    are measured."""
    tables: dict[str, list[pd.DataFrame]] = {"bleu": [], "attended": [], "gates": []}
    for condition, seed, directory in runs_of(words, "valid.hyp.de"):
        tables["bleu"].append(pd.DataFrame([{"condition": condition, "run": seed, "bleu": bleu(directory)}]))
    for condition, seed, directory in runs_of([word for word in words if word.partition("=")[0] in ("none", *GATED)]):
        parts, own = read_parts(directory / "heads" / FILE), {"condition": condition, "run": seed}
        tables["attended"].append(attended(parts["roles"]).assign(**own))
        run = open_run(directory)
        if run.config.model.head_gate:
            tables["gates"].append(gates(run, parts["ablation"]).assign(**own))
    return {name: pd.concat(each) for name, each in tables.items()}


def ranks(gates_: pd.DataFrame, within: bool) -> pd.DataFrame:
    """Rank correlation over heads of the mean gate with the harm, by run and task; within: over the heads of a
    sublayer, the mean over sublayers, so that levels of sublayers do not count."""
    sublayers = gates_["head"].str.partition(".")[0] if within else pd.Series("", gates_.index)
    rows = [
        {"run": run, "task": name, "rank": stats.spearmanr(own["gate"], own["harm"]).statistic}
        for (run, name, _), own in gates_.groupby(["run", "task", sublayers])
    ]
    return pd.DataFrame(rows).pivot_table(index="run", columns="task", values="rank")


def contrasts(scores: pd.DataFrame, attended_: pd.DataFrame) -> dict[str, pd.Series]:
    """The six contrasts of the design, a figure a run."""
    of = {name: own.set_index("run")["bleu"] for name, own in scores.groupby("condition")}
    cross = attended_[attended_["head"].str.startswith("cross")]
    share = (cross["rest"] + cross["punctuation"]).groupby([cross["condition"], cross["run"]]).mean()
    found = {
        f"BLEU, {corpus}: `{gate}` less none": of[prefix + gate] - of[f"{prefix}none"]
        for prefix, corpus in (("", "built-in corpus"), (CAPTIONS, "Multi30k"))
        for gate in GATED
    }
    fall = {gate: (of[gate] - of[f"{gate}_0.04"]).dropna() for gate in ("none", "head")}
    found["BLEU lost from rate 0.01 to 0.04: none less `head`"] = fall["none"] - fall["head"]
    found["cross-attention on the end and punctuation: none less `head`"] = share["none"] - share["head"]
    return found


def figures(scores: pd.DataFrame, attended_: pd.DataFrame, gates_: pd.DataFrame) -> dict[str, Any]:
    """What the page says, but for its first sentence."""
    own = contrasts(scores, attended_)
    correlations = {
        (name, within): ranks(each, within) for name, each in gates_.groupby("condition") for within in (True, False)
    }
    tasks = correlations["head", True]
    return {
        "tests": planned(own),
        "bleu": {name: (each["bleu"].mean(), len(each)) for name, each in scores.groupby("condition", sort=False)},
        "ranks": {task: {key: over_runs(each[task]) for key, each in correlations.items()} for task in tasks},
        "gates": {name: each["gate"].mean() for name, each in gates_[gates_["task"] == LOSS].groupby("condition")},
        "alarms": alarm_rate(own.values()),
    }


def captions() -> pd.DataFrame:
    """BLEU of the kept runs without a gate on Multi30k, seeds 1 to 5, from their n-gram counts."""
    counts, seeds = counts_of("equal_heads_multi30k"), range(1, 6)
    scores = [float(bleu_of(counts[f"model.num_heads=4,seed={seed}"].sum(axis=0))) for seed in seeds]
    return pd.DataFrame({"condition": f"{CAPTIONS}none", "run": seeds, "bleu": scores})


def page() -> tuple[str, str]:
    """The page and its picture, from the kept figures."""
    scores, *others = (kept(QUESTION, name) for name in ("bleu", "attended", "gates"))
    found = figures(pd.concat([scores, captions()]), *others)
    rows = [
        {"task": task, "gate": f"a gate a{'n' * (gate == 'element')} {gate}", **each._asdict()}
        for task, own in found["ranks"].items()
        for (gate, within), each in own.items()
        if within
    ]
    order = list(found["ranks"])
    picture = points(pd.DataFrame(rows), "task", order, "rank correlation of gate and harm", "gate")
    return rendered(f"{QUESTION}.md.jinja", **found), picture


if __name__ == "__main__":
    if sys.argv[1:2] == ["collect"]:
        for name, each in collect(sys.argv[2:]).items():
            keep(QUESTION, each, name)
