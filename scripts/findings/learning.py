"""Needed to learn, or only to do? A head is held at zero in training from a step on; does its phenomenon return?

python scripts/findings/learning.py choose default=PATTERN                each run's head of negation, and its control
python scripts/findings/learning.py collect default=PATTERN held=PATTERN  the runs to docs/results/learning
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from common import Estimate, alarm_rate, bleu, keep, kept, over_runs, planned, points, rendered, runs_of

from headcount import open_run
from headcount.heads.ablation import effects, without_each
from headcount.heads.door import Run
from headcount.heads.evaluation_set import evaluation_set

QUESTION, PHENOMENON, FINISHED = "learning", "negation", "metrics.json"
MARGIN = 5  # points of accuracy: more is needed, less is not
STEPS = (0, 125, 250, 500, 750)


def margins(run: Run, split: str) -> pd.DataFrame:
    """Mean margin in nats and accuracy in percent of negation, of the whole model and without each head."""
    test = evaluation_set(run, run.data().one_way[split].filter(lambda row: row["phenomenon"] == PHENOMENON))
    found = effects(run.heads, test, without_each(run.heads))
    odds = found["right"] - found["wrong"]
    table = {"off": ["", *run.heads.labels], "margin": odds.mean(axis=1), "accuracy": 100 * (odds > 0).mean(axis=1)}
    return pd.DataFrame(table)


def choose(run: Run) -> tuple[str, str]:
    """The head whose removal costs most of the margin of negation on validation pairs, and the next one by number of
    its sublayer."""
    table = margins(run, "valid")
    head = run.heads.names[int(table["margin"][1:].argmin())]
    count = run.heads.layers[head.place].heads.count
    return str(head), str(head._replace(head=head.head % count + 1))


def measured(directory: Path) -> pd.DataFrame:
    """The effects of a run on negation, with its BLEU on validation and test, and what was held from which step on."""
    run = open_run(directory)
    held = run.config.averaging.get("heads", [""])[0], run.config.averaging.get("after", -1)
    own = {"run": run.config.seed, "held": held[0], "after": held[1]}
    return margins(run, "test").assign(bleu=bleu(directory), **own)


def collect(words: Sequence[str]) -> pd.DataFrame:
    """All runs; chosen: the head of negation of the default run of the same seed. words: see `runs_of`."""
    runs = list(runs_of(words, FINISHED))
    chosen = {seed: choose(open_run(path))[0] for condition, seed, path in runs if condition == "default"}
    table = pd.concat([measured(path) for _, _, path in runs])
    if twice := sorted({*table[table.duplicated(["run", "held", "after", "off"])]["run"]}):
        raise SystemExit(f"seed {twice[0]}: two runs of one condition; give a pattern that matches one of them")
    return table.assign(chosen=table["run"].map(chosen))


def figures(table: pd.DataFrame) -> dict[str, Any]:
    """What the page says, but for its first sentence."""
    whole = table[table["off"] == ""].set_index(["run", "after", "held"])
    heads = table.drop_duplicates("run").set_index("run")["chosen"]
    default = table[table["after"] < 0].set_index(["run", "off"])
    without = pd.Series({run: default.loc[run, head]["accuracy"] for run, head in heads.items()})
    intact = pd.Series({run: default.loc[run, ""]["accuracy"] for run in heads.index})

    def figure(name: str, after: int) -> pd.Series:
        return pd.Series({run: whole.loc[run, after, head][name] for run, head in heads.items()})

    control = whole[(whole.index.get_level_values("after") == 0)].reset_index()
    control = control[control["held"] != control["run"].map(heads)].set_index("run")["accuracy"][heads.index]
    raw = {
        "given back from step 0": figure("accuracy", 0) - without,
        "given back from step 750": figure("accuracy", 750) - without,
        "not given back from step 0": intact - figure("accuracy", 0),
        "held from step 0 less the control": figure("accuracy", 0) - control,
    }
    intact_bleu = default.xs("", level="off")["bleu"]
    return {
        "curve": {step: over_runs(figure("accuracy", step)) for step in STEPS},
        "cost": {step: over_runs(intact_bleu - figure("bleu", step)) for step in STEPS},
        "without": over_runs(without),
        "intact": over_runs(intact),
        "tests": (tests := planned(raw)),
        "verdict": verdict(tests["not given back from step 0"]),
        "instead": instead(table, heads),
        "alarms": alarm_rate(raw.values()),
    }


def verdict(lost: Estimate) -> str:
    """What the design says of the points of accuracy that are not given back."""
    above, below = lost.low > MARGIN, lost.high < MARGIN
    return "needed to learn" if above else "not needed to learn" if below else "undecided"


def instead(table: pd.DataFrame, heads: pd.Series) -> list[tuple[int, str, str]]:
    """By run: the head of negation of the default run, and the head that costs most where that was held from step 0."""
    found = []
    for run, head in heads.items():
        own = table[(table["run"] == run) & (table["after"] == 0) & (table["held"] == head) & (table["off"] != "")]
        found.append((int(run), head, own.loc[own["margin"].idxmin(), "off"]))
    return found


def page() -> tuple[str, str]:
    """The page and its picture, from the kept effects."""
    found = figures(kept(QUESTION))
    each = {**{str(step): value for step, value in found["curve"].items()}, "never": found["intact"]}
    rows = [{"after": step, "series": "held from this step on", **value._asdict()} for step, value in each.items()]
    picture = points(pd.DataFrame(rows), "after", list(each), "accuracy on negation, %", "series")
    return rendered(f"{QUESTION}.md.jinja", **found), picture


if __name__ == "__main__":
    if sys.argv[1:2] == ["choose"]:
        for *_, run in runs_of(sys.argv[2:], FINISHED):
            sys.stdout.write(" ".join([run.name, *choose(open_run(run))]) + "\n")
    elif sys.argv[1:2] == ["collect"]:
        keep(QUESTION, collect(sys.argv[2:]))
