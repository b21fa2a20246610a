"""Warnings of a report: what a verdict on rows does not allow for."""

from typing import Any

from headcount.report.runs import RunResult, Sweep, finite
from headcount.report.verdicts import deviations, listed, mean
from headcount.statistics.comparison import Comparison

CONSTANT = 0.01  # the relative difference at which a figure is not constant
NOTHING = 5.0  # BLEU; below, translations are fragments, and rows rank by how they fail
UNLIKE = 10  # ratio of the largest to the smallest deviation between the runs of a row; above it, a warning


def flagged(sweep: Sweep) -> list[str]:
    """A line for each warning, the gravest first."""
    rows, runs = sweep.rows, sweep.runs
    lines = []
    if low := [row.label for row in rows if max(row.figures("test.bleu")) < NOTHING]:
        lines.append(f"No run has learnt to translate (test BLEU below {NOTHING:g}): {listed(low)}.")
    without = [run.name for run in runs if not finite(run.figure("valid.loss"))]
    if 0 < len(without) < len(runs):
        lines.append(f"No finite validation loss, and not in the verdicts on loss: {listed(without)}.")
    seeds = {run.seed for run in runs}
    lacking = {row.label: sorted(seeds - {run.seed for run in row.runs}) for row in rows}
    if missing := [f"{label} lacks {', '.join(map(str, each))}" for label, each in lacking.items() if each]:
        lines.append(f"Not every condition has the same seeds: {'; '.join(missing)}.")
    for path in sweep.design.constant:
        values = [row.figures(path) for row in rows]
        if sum(map(len, values)) < len(runs):
            lines.append(f"{path} should be constant, but cannot be checked, since not every run has it.")
        elif max(map(max, values)) > min(map(min, values)) * (1 + CONSTANT):
            means = listed([f"{mean(figures)} ({row.label})" for row, figures in zip(rows, values, strict=True)])
            lines.append(f"{path} should be constant, but is not: {means}.")
    if not all(rows[0].same_pieces(row) for row in rows):
        lines.append("The conditions have different vocabularies: losses are compared where they have the same one.")
    for path in ("hardware", "train.precision", "versions"):
        if len(answers := answers_of(runs, path)) > 1:
            lines.append(f"The runs differ in their {path.rpartition('.')[2]}: {'; '.join(answers)}.")
    return lines


def unlike(comparison: Comparison) -> list[str]:
    """A line if the runs of some rows vary so much more than those of others that verdicts may be too bold."""
    spread = comparison.spread
    if spread is None or spread.alike or max(spread.variances) < UNLIKE**2 * min(spread.variances):
        return []
    return [
        f"The runs of a condition deviate by {deviations(comparison, 2)} BLEU. With few runs of conditions so unlike, "
        "more than 5 % of studies in which no condition differs may claim a difference."
    ]


def answers_of(runs: list[RunResult], path: str) -> list[str]:
    """What metrics.json of runs has at a path in words, each different answer once."""
    return list(dict.fromkeys(_words(run.figure(path)) for run in runs))


def _words(node: Any) -> str:
    """A node of metrics.json in words."""
    if isinstance(node, dict):
        return ", ".join(f"{name} {_words(value)}" for name, value in node.items())
    return "none" if node is None else str(node)
