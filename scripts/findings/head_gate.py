"""A gate for each head, read from the data: what it is worth, and whether it shows which heads matter.

    python scripts/findings/head_gate.py collect NAME=RUNS...   measured runs to docs/results/head_gate/*.parquet

Qiu et al. 2025, "Gated attention for large language models" (arXiv 2505.06708).
"""

import sys
from collections.abc import Sequence

import numpy as np
import pandas as pd
from common import keep, runs_of

from headcount import open_run
from headcount.heads.analysis import Arrays
from headcount.heads.door import Run
from headcount.heads.effects import FILE, read_parts
from headcount.heads.evaluation_set import evaluation_set
from headcount.heads.importance import harms
from headcount.heads.interface import KINDS
from headcount.heads.roles import MEASURES
from headcount.heads.statistics import LOSS

QUESTION = "head_gate"
TEST = 800  # sentences


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
    """The tables of all measured runs, by condition and run, see `runs_of`."""
    tables: dict[str, list[pd.DataFrame]] = {"attended": [], "gates": []}
    for condition, seed, directory in runs_of(words):
        parts, own = read_parts(directory / "heads" / FILE), {"condition": condition, "run": seed}
        tables["attended"].append(attended(parts["roles"]).assign(**own))
        run = open_run(directory)
        if run.config.model.head_gate:
            tables["gates"].append(gates(run, parts["ablation"]).assign(**own))
    return {name: pd.concat(each) for name, each in tables.items()}


if __name__ == "__main__":
    if sys.argv[1:2] == ["collect"]:
        for name, each in collect(sys.argv[2:]).items():
            keep(QUESTION, each, name)
