"""Warnings of a report: runs without a loss, rows that differ in more than the study varies."""

from collections.abc import Sequence
from typing import Any

from headcount.report.runs import RunResult, Sweep, finite
from headcount.report.table import mean
from headcount.report.verdicts import deviations, listed, quoted
from headcount.statistics.comparison import Comparison

CONSTANT = 0.01  # the relative difference at which a figure is not constant
NOTHING = 10.0  # BLEU; below, translations are fragments whose gist is rarely right, and rows rank by how they fail
UNLIKE = 10  # ratio of the largest to the smallest deviation between the runs of a row; above it, a warning


def flagged(sweep: Sweep) -> list[str]:
    """A line for each warning, the gravest first."""
    runs = sweep.runs
    return [
        *_untranslated(sweep),
        *_without_loss(runs),
        *_seeds(sweep),
        *_inconstant(sweep),
        *_same(sweep),
        *_vocabularies(sweep),
        *_machines(runs),
    ]


def unlike(comparison: Comparison) -> list[str]:
    """A line if the runs of some rows vary so much more than those of others that verdicts may be too bold."""
    spread = comparison.spread
    if spread is None or spread.alike or max(spread.variances) < UNLIKE**2 * min(spread.variances):
        return []
    return [
        f"The runs of a row deviate by {deviations(comparison, 2)} BLEU. With few runs of rows so unlike, "
        "more than 5 % of studies in which no row differs may claim a difference."
    ]


def nothing_learnt(sweep: Sweep) -> str | None:
    """The verdict where no run has learnt to translate, so that the best of them is no better; else None."""
    best = max(score for row in sweep.rows for score in row.figures("test.bleu"))
    if best >= NOTHING:
        return None
    return f"No run has learnt to translate: the highest test BLEU is {best:.1f}, and nothing can be said of the rows."


def _untranslated(sweep: Sweep) -> list[str]:
    """Rows that have learnt next to nothing, which all look equal."""
    rows = [quoted(row.label) for row in sweep.rows if max(row.figures("test.bleu")) < NOTHING]
    if not rows:
        return []
    who = "All runs" if len(rows) == len(sweep.rows) else f"All runs of {listed(rows)}"
    return [
        f"{who} have a test BLEU below {NOTHING:g}: they have not learnt to translate, so that they are alike says "
        "nothing about what the study varies."
    ]


def _without_loss(runs: Sequence[RunResult]) -> list[str]:
    """Runs that the mean loss of their row leaves out, which can make a row look better."""
    without = [run.name for run in runs if not finite(run.figure("valid.loss"))]
    if not without or len(without) == len(runs):
        return []
    return [
        f"No finite validation loss: {listed(without)}. The losses of their rows and the verdicts on loss are without "
        "them."
    ]


def _seeds(sweep: Sweep) -> list[str]:
    """The seeds that some rows have and others lack."""
    every = sorted({run.seed for run in sweep.runs})
    missing = []
    for row in sweep.rows:
        if lacking := sorted(set(every) - {run.seed for run in row.runs}):
            missing.append(f"{row.label} lacks {', '.join(map(str, lacking))}")
    return [f"Not every row has the same seeds: {'; '.join(missing)}."] if missing else []


def _inconstant(sweep: Sweep) -> list[str]:
    """Figures that the study claims to be constant and that are not, or that a run lacks."""
    lines = []
    for path in sweep.design.constant:
        values = [row.figures(path) for row in sweep.rows]
        if sum(map(len, values)) < len(sweep.runs):
            lines.append(f"{path} should be constant, but cannot be checked, since not every run has it.")
            continue
        low, high = min(map(min, values)), max(map(max, values))
        if high > low * (1 + CONSTANT):
            means = listed([f"{mean(figures)} ({row.label})" for row, figures in zip(sweep.rows, values, strict=True)])
            lines.append(f"{path} should be constant, but differs by {100 * (high / low - 1):.1f} %: {means}.")
    return lines


def _same(sweep: Sweep) -> list[str]:
    """Several seeds of every row with one and the same score."""
    if any(len(row.runs) > 1 for row in sweep.rows) and all(
        len(set(row.figures("test.bleu"))) == 1 for row in sweep.rows
    ):
        return ["All runs of a row have exactly the same test BLEU, in every row, as if the seed had no effect."]
    return []


def _vocabularies(sweep: Sweep) -> list[str]:
    if not all(sweep.rows[0].same_pieces(row) for row in sweep.rows):
        return [
            "The rows have different vocabularies. Losses and perplexities are per subword piece: rows are compared by "
            "them only where they have the same vocabulary."
        ]
    return []


def _machines(runs: Sequence[RunResult]) -> list[str]:
    """Hardware, precision and versions that differ between runs."""
    lines = []
    for path, what in (
        ("hardware", "seconds and tokens/s cannot be compared"),
        ("train.precision", "seconds and tokens/s cannot be compared, and rounding differs"),
        ("versions", "figures may differ for that reason"),
    ):
        groups: dict[str, list[str]] = {}
        for run in runs:
            groups.setdefault(as_words(run.figure(path)), []).append(run.name)
        if len(groups) > 1:
            each = "; ".join(
                f"{value} ({len(names)} {'run' if len(names) == 1 else 'runs'})" for value, names in groups.items()
            )
            lines.append(f"The runs differ in their {path.rpartition('.')[2]}, so {what}: {each}.")
    return lines


def as_words(node: Any) -> str:
    """A node of metrics.json in words."""
    if isinstance(node, dict):
        return ", ".join(f"{name} {as_words(value)}" for name, value in node.items())
    return "none" if node is None else str(node)
