"""Causal head gating, by phenomenon: which heads are needed, harmful, interchangeable?

    python scripts/findings/gating.py collect RUN...     fits gates of these runs: docs/results/gating/*.parquet

Nam et al. 2025, "Causal head gating" (arXiv 2505.13737): gates between 0 and 1 of all heads are fitted to a task, then
pushed up and pushed down. What stays open when pushed down is needed, what closes when pushed up does harm.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import altair
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
import vl_convert
from common import add, alarm_rate, kept, over_runs, rendered
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from headcount.data.batches import Batch, collate
from headcount.data.batching import in_order_of_length
from headcount.heads.ablation import effects, without_each
from headcount.heads.evaluation_set import EvaluationSet, evaluation_set, select
from headcount.heads.importance import gate_gradients
from headcount.heads.interface import Heads
from headcount.heads.likelihood import batch_log_probs
from headcount.run.opened import open_run
from headcount.statistics.planned import holm

QUESTION = "gating"
LOSS = "loss"
STEPS, DRAWS = 120, 5
ROLES = ("facilitating", "irrelevant", "interfering")
RATE = 0.2  # Adam's, of the logits
WITHIN, CHOSEN_WITHIN = 5.0, 2.0  # points of accuracy that a sufficient set may lose on test and validation pairs
PUSH = 0.005  # on each logit, in nats
LIMIT = 4.0  # of logits
BATCH_TOKENS = 512


@dataclass(frozen=True)
class Task:
    """Sentences that gates are fitted to: batches of right and of wrong translations; without wrong ones, the loss."""

    right: list[Batch]
    wrong: list[Batch]

    def objective(self, heads: Heads, gates: Tensor, number: int, margin: bool = False) -> Tensor:
        """Nats a token of references, or of a choice between right and wrong translation; margin: in place of the
        latter, wrong less right log-probability, which also falls where all choices are right already."""
        with heads.gated(gates):
            right = batch_log_probs(heads, self.right[number])
            if not self.wrong:
                return -right.sum() / (right != 0).sum()
            wrong = batch_log_probs(heads, self.wrong[number])
        lost = wrong.sum(dim=1) - right.sum(dim=1)
        return lost.mean() if margin else F.softplus(lost).mean()


def task(heads: Heads, sentences: EvaluationSet, phenomenon: str) -> Task:
    """The task of a phenomenon, or of the loss."""

    def batches(source, target, groups):  # type: ignore[no-untyped-def]
        return [collate(source, target, rows, 0).to(heads.model.device) for rows in groups]

    if phenomenon == LOSS:
        groups = in_order_of_length(sentences.source.lengths, sentences.target.lengths, BATCH_TOKENS)
        return Task(batches(sentences.source, sentences.target, groups), [])
    own = np.flatnonzero([cell[0] == phenomenon for cell in sentences.cells])
    source, right = (select(each, sentences.tested[own]) for each in (sentences.source, sentences.target))
    wrong = select(sentences.contrast, own)
    groups = in_order_of_length(source.lengths, np.maximum(right.lengths, wrong.lengths), BATCH_TOKENS)
    return Task(batches(source, right, groups), batches(source, wrong, groups))


def fitted(
    heads: Heads, own: Task, start: Tensor, push: float, random: np.random.Generator, margin: bool = False
) -> Tensor:
    """Logits of gates after `STEPS` steps of Adam from `start`; push: on each, up or down. margin: see `Task`."""
    logits = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=RATE)
    for _ in range(STEPS):
        loss = own.objective(heads, logits.sigmoid(), int(random.integers(len(own.right))), margin)
        loss = loss - push * logits.sum()
        optimizer.zero_grad()
        loss.backward(inputs=[logits])
        optimizer.step()
        with torch.no_grad():
            logits.clamp_(-LIMIT, LIMIT)
    return logits.detach()


def gates_of(heads: Heads, own: Task, draw: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """G+ (of the margin, where there is one) and G-, [head] each, from one draw of initial logits."""
    random = np.random.default_rng(draw)
    start = torch.from_numpy(random.normal(0, 1, len(heads))).to(heads.gates())
    free = fitted(heads, own, start, 0.0, random)
    up, down = (fitted(heads, own, free, sign * PUSH, random, margin=sign > 0) for sign in (1, -1))
    return up.sigmoid().cpu().double().numpy(), down.sigmoid().cpu().double().numpy()


def scores(heads: Heads, test: EvaluationSet, gates: Tensor) -> Callable[[str, int], dict[str, float]]:
    """Of a phenomenon (or the loss) and a row of `gates`: accuracy in percent and margin in nats on test pairs, or the
    loss in nats a token."""
    found = effects(heads, test, gates)
    margins, names = found["right"] - found["wrong"], test.labels["phenomenon"]

    def score(phenomenon: str, row: int) -> dict[str, float]:
        if phenomenon == LOSS:
            return {"loss": float(found["loss"][row].sum() / found["lengths"].sum())}
        own = margins[row, names == phenomenon]
        return {"accuracy": 100 * float((own > 0).mean()), "margin": float(own.mean())}

    return score


def sufficient(accuracy: Callable[[NDArray[np.bool_]], NDArray], down: NDArray[np.float64]) -> NDArray[np.bool_]:
    """A sufficient set from which no head can go, [head]: the most open heads of G-, as few as suffice; then each is
    tried without, the least open first. accuracy: of sets [set, head], in percent on validation pairs."""
    order = np.argsort(-down, kind="stable")
    on = np.tri(1 + len(order), len(order), -1, dtype=bool)[:, np.argsort(order)]  # [heads that are on, head]
    found = accuracy(on)
    enough = found[-1] - CHOSEN_WITHIN
    kept_ = np.array(on[int((found >= enough).argmax())])
    for head in [head for head in order[::-1] if kept_[head]]:
        kept_[head] = False
        kept_[head] = accuracy(kept_[None])[0] < enough
    return kept_


def accuracies(heads: Heads, valid: EvaluationSet, phenomenon: str) -> Callable[[NDArray[np.bool_]], NDArray]:
    """Accuracy in percent on the pairs of a phenomenon with the heads of each set alone, see `sufficient`."""
    own = evaluation_set_of(valid, phenomenon)

    def accuracy(on: NDArray[np.bool_]) -> NDArray:
        found = effects(heads, own, torch.from_numpy(on).to(heads.gates()))
        return np.asarray(100 * (found["right"] > found["wrong"]).mean(axis=1))

    return accuracy


def signed(heads: Heads, valid: EvaluationSet) -> dict[str, NDArray]:
    """Mean gradient of the margin in nats with respect to the gates at 1, [head], by phenomenon."""
    source = select(valid.source, valid.tested)
    right = gate_gradients(heads, source, select(valid.target, valid.tested))
    margin, names = gate_gradients(heads, source, valid.contrast) - right, valid.labels["phenomenon"]
    return {name: margin[names == name].mean(axis=0) for name in np.unique(names)}


def evaluation_set_of(sentences: EvaluationSet, phenomenon: str) -> EvaluationSet:
    """The pairs of one phenomenon."""
    own = np.flatnonzero([cell[0] == phenomenon for cell in sentences.cells])
    rows = sentences.tested[own]
    return replace(
        sentences,
        rows=sentences.rows.select(rows),
        source=select(sentences.source, rows),
        target=select(sentences.target, rows),
        own=np.arange(len(rows)),
        tested=np.arange(len(rows)),
        contrast=select(sentences.contrast, own),
        cells=[sentences.cells[pair] for pair in own],
        twinned=np.arange(0),
    )


def collect(directory: Path, test: int | None = 800, valid: int | None = None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The gates of a run, a row for each task, draw and head; and what sets of heads do on test pairs: all, those that
    are facilitating alone, all but these, all but the interfering ones, and all but each head."""
    run = open_run(directory)
    heads, splits = Heads(run.model), run.data().one_way
    test_set, valid_set = evaluation_set(run, splits["test"], test), evaluation_set(run, splits["valid"], valid)
    gradients = signed(heads, valid_set)
    names, labels = [LOSS, *gradients], heads.labels
    gates, settings = [], []
    rows: list[dict[str, Any]] = []
    for name in names:
        own, accuracy = task(heads, valid_set, name), accuracies(heads, valid_set, name)
        for draw in range(DRAWS):
            up, down = gates_of(heads, own, draw)
            table = {"task": name, "draw": draw, "head": labels, "up": up, "down": down}
            gates.append(pd.DataFrame(table | {"signed": gradients.get(name, np.nan)}))
            sets = {"facilitating": down > 0.5, "without interfering": up >= 0.5}
            if name != LOSS:
                sets["sufficient"] = sufficient(accuracy, down)
            on_in = {key: "+".join(labels[on]) for key, on in sets.items()}
            rows += [{"task": name, "draw": draw, "set": key, "on": heads_on} for key, heads_on in on_in.items()]
            settings += [torch.from_numpy(on).to(heads.gates()) for on in sets.values()]
    single = without_each(heads)
    score = scores(heads, test_set, torch.cat([single, torch.stack(settings)]))
    for number, row in enumerate(rows):
        row |= score(row["task"], len(single) + number)
    off = ["all", *(f"without {head}" for head in labels)]
    for name in names:
        rows += [{"task": name, "set": key, **score(name, number)} for number, key in enumerate(off)]
    return pd.concat(gates), pd.DataFrame(rows)


def roles(gates: pd.DataFrame) -> pd.DataFrame:
    """Mean number of heads of each role, by task: over runs and draws."""
    role = np.where(gates["down"] > 0.5, "facilitating", np.where(gates["up"] < 0.5, "interfering", "irrelevant"))
    draws = gates[["run", "draw"]].drop_duplicates()
    return gates.assign(role=role).groupby(["task", "role"]).size().unstack(fill_value=0) / len(draws)


def found_sets(sets: pd.DataFrame) -> dict[tuple[str, str], list[set[str]]]:
    """The sets that are sufficient on test pairs too, by run and phenomenon; different ones alone."""
    whole = sets[sets["set"] == "all"].set_index(["run", "task"])["accuracy"]
    tried = sets[sets["set"] == "sufficient"]
    enough = tried[
        tried["accuracy"].to_numpy() >= whole[pd.MultiIndex.from_frame(tried[["run", "task"]])].to_numpy() - WITHIN
    ]
    found: dict[tuple[str, str], list[set[str]]] = {key: [] for key in whole.index if key[1] != LOSS}
    for row in enough.itertuples():
        own = set(filter(None, str(row.on).split("+")))
        if own not in found[row.run, row.task]:
            found[row.run, row.task].append(own)
    return found


def apart(sets: list[set[str]]) -> bool:
    """Whether two of the sets share less than half of the heads of the smaller one."""
    return any(len(a & b) < 0.5 * min(len(a), len(b)) for a, b in combinations(sets, 2))


def costly(sets: pd.DataFrame, bound: float = 0.01) -> dict[str, set[str]]:
    """By run, the heads that alone cost more than the bound on the loss, in nats a token."""
    loss = sets[sets["task"] == LOSS].set_index(["run", "set"])["loss"]
    found: dict[str, set[str]] = {run: set() for run in sets["run"].unique()}
    for (run, name), value in loss.items():
        if name.startswith("without ") and "." in name and value - loss[run, "all"] > bound:
            found[run].add(name.removeprefix("without "))
    return found


def interference(sets: pd.DataFrame) -> pd.DataFrame:
    """Margin in nats without the interfering heads less that of the whole model, mean over draws, [run, phenomenon]."""
    margins = sets[sets["task"] != LOSS].pivot_table(index="run", columns=["set", "task"], values="margin")
    return margins["without interfering"] - margins["all"]


def ranks(gates: pd.DataFrame, sets: pd.DataFrame, column: str) -> pd.DataFrame:
    """Rank correlation over heads of a column of the gates, mean over draws, with the harm of removing the head, [run,
    task]."""
    down = gates.groupby(["run", "task", "head"])[column].mean()
    score = sets.assign(score=sets["margin"].fillna(-sets["loss"])).groupby(["run", "task", "set"])["score"].mean()
    rows = []
    for (run, name), own in down.groupby(level=["run", "task"]):
        harm = [
            score[run, name, "all"] - score[run, name, f"without {head}"] for head in own.index.get_level_values("head")
        ]
        rows.append({"run": run, "task": name, "rank": stats.spearmanr(own, harm).statistic})
    return pd.DataFrame(rows).pivot(index="run", columns="task", values="rank")


def figures(gates: pd.DataFrame, sets: pd.DataFrame) -> dict[str, Any]:
    """What the page says, but for its first sentence."""
    counts, found, needed, harm = roles(gates), found_sets(sets), costly(sets), interference(sets)
    rank, heads = {name: ranks(gates, sets, name) for name in ("down", "signed")}, gates["head"].nunique()
    p = dict(zip(harm, holm([over_runs(harm[name]).p for name in harm]), strict=True))
    rows = []
    for name in counts.index:
        own = {run: each for (run, task), each in found.items() if task == name}
        sizes = [len(each) for sets_ in own.values() for each in sets_]
        shared = {run: set[str].intersection(*each) for run, each in own.items() if each}
        lacking = [len(needed[run] - each) / max(len(needed[run]), 1) for run, each in shared.items()]
        chance = [1 - np.prod([len(each) / heads for each in sets_]) for sets_ in own.values() if sets_]
        row: dict[str, Any] = {"task": name, **{role: counts.loc[name].get(role, 0.0) for role in ROLES}}
        row |= {"apart": "–", "size": "–", "lacks": "–", "interference": "–", "signed": "–"}
        row["rank"] = over_runs(rank["down"][name]).show()
        if name != LOSS:
            row["apart"] = f"{sum(map(apart, own.values()))} of {len(own)}"
            row["signed"] = over_runs(rank["signed"][name]).show()
            if sizes:
                row["size"] = f"{min(sizes)} to {max(sizes)}"
                row["lacks"] = f"{100 * np.mean(lacking):.0f} % ({100 * np.mean(chance):.0f} %)"
            row["interference"] = f"{over_runs(harm[name], harm.shape[1]).show()} (p {p[name]:.3f})"
        rows.append(row)
    several = sum(row["apart"].startswith(("4", "5")) for row in rows)
    raised = [name for name in harm if p[name] < 0.05 and harm[name].mean() > 0]
    return {
        "rows": rows,
        "several": several,
        "verdict": "holds" if several >= 4 else "not shown",
        "costly": f"{np.mean([len(each) for each in needed.values()]):.1f}",
        "harmful": f"Removing them raises the margin of {', '.join(raised) or 'no phenomenon'}.",
        "alarms": alarm_rate(harm.to_numpy().T),
    }


def picture(gates: pd.DataFrame) -> str:
    """Stacked bars of the roles, by task, as SVG."""
    data = roles(gates)[list(ROLES)].reset_index().melt("task", var_name="role", value_name="heads")
    colour = altair.Color("role", title=None, sort=list(ROLES), legend=altair.Legend(orient="bottom"))
    bars = altair.Chart(data).mark_bar().encode(x=altair.X("task", title=None), y="heads", color=colour)
    return str(vl_convert.vegalite_to_svg(bars.properties(width=420, height=240).to_json()))


def page() -> tuple[str, str]:
    """The page and its picture, from the kept gates and sets."""
    gates, sets = kept(QUESTION, "gates"), kept(QUESTION, "sets")
    return rendered(f"{QUESTION}.md.jinja", **figures(gates, sets)), picture(gates)


if __name__ == "__main__":
    if sys.argv[1:2] == ["collect"]:
        for each in map(Path, sys.argv[2:]):
            for name, table in zip(("gates", "sets"), collect(each), strict=True):
                add(QUESTION, table.assign(run=each.name), ["run"], name)
