"""Needed to learn, or only to do? A head is held at zero in training from a step on; does its phenomenon return?

python scripts/findings/learning.py choose DEFAULT         the head of negation of each run, and that of the control
python scripts/findings/learning.py collect DEFAULT HELD   the runs of both sweeps to docs/results/learning
"""

import sys
from pathlib import Path
from typing import Any

import pandas as pd
from common import alarm_rate, bleu, keep, kept, over_runs, planned, points, rendered

from headcount import open_run
from headcount.heads.ablation import effects, without_each
from headcount.heads.door import Run
from headcount.heads.evaluation_set import evaluation_set

QUESTION, PHENOMENON = "learning", "negation"
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


def collect(default: Path, held: Path) -> pd.DataFrame:
    """All runs; chosen: the head of negation of the default run of the same seed."""
    runs = sorted(path.parent for sweep in (default, held) for path in sweep.glob("*/metrics.json"))
    table = pd.concat([measured(each) for each in runs])
    chosen = {open_run(each).config.seed: choose(open_run(each))[0] for each in runs if each.parent == default}
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
    control = control[control["held"] != control["run"].map(heads)].set_index("run")["accuracy"]
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
        "tests": planned(raw),
        "instead": instead(table, heads),
        "alarms": alarm_rate(raw.values()),
    }


def instead(table: pd.DataFrame, heads: pd.Series) -> list[tuple[int, str, str]]:
    """By run: the head of negation of the default run, and the head that costs most where that was held from step 0."""
    found = []
    for run, head in heads.items():
        own = table[(table["run"] == run) & (table["after"] == 0) & (table["held"] == head) & (table["off"] != "")]
        found.append((int(run), head, own.loc[own["margin"].idxmin(), "off"] if own["off"].is_unique else ""))
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
        for path in sorted(Path(sys.argv[2]).glob("*/metrics.json")):
            sys.stdout.write(" ".join([path.parent.name, *choose(open_run(path.parent))]) + "\n")
    elif sys.argv[1:2] == ["collect"]:
        keep(QUESTION, collect(Path(sys.argv[2]), Path(sys.argv[3])))
