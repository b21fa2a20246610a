"""Warnings of a report: diverged runs, harmful weight averages, rows that differ in more than the study varies."""

from collections.abc import Sequence
from typing import Any

from headcount.report.runs import RunResult, Sweep, finite
from headcount.report.table import mean
from headcount.report.verdicts import deviations, listed, quoted
from headcount.settings import at
from headcount.statistics.comparison import Comparison

CONSTANT = 0.01  # the relative difference at which a figure is not constant
NOTHING = 10.0  # BLEU; below, translations are fragments whose gist is rarely right, and rows rank by how they fail
UNLIKE = 10  # ratio of the largest to the smallest deviation between the runs of a row; above it, a warning
CLEARLY = 0.01  # nats, more than the loss of the same weights differs between two precisions


def flagged(sweep: Sweep) -> list[str]:
    """A line for each warning, the gravest first."""
    runs = sweep.runs
    return [
        *_untranslated(sweep),
        *_diverged(runs),
        *_without_loss(runs),
        *_without_curves(runs),
        *_averages(runs),
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


def _diverged(runs: Sequence[RunResult]) -> list[str]:
    return [
        f"{run.name} has no finite validation perplexity: it seems to have diverged."
        for run in runs
        if run.figure("valid.ppl") is not None and not finite(run.figure("valid.ppl"))
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


def _without_curves(runs: Sequence[RunResult]) -> list[str]:
    """Runs that the learning curves of their row leave out."""
    without = [run.name for run in runs if not run.curves]
    if not without or len(without) == len(runs):
        return []
    return [f"No learning curves (logs/metrics.csv): {listed(without)}. Those of their rows are without them."]


def _seeds(sweep: Sweep) -> list[str]:
    """The seeds that some rows have and others lack."""
    every = sorted({run.seed for run in sweep.runs})
    missing = []
    for row in sweep.rows:
        if lacking := sorted(set(every) - {run.seed for run in row.runs}):
            missing.append(f"{row.label} lacks {', '.join(map(str, lacking))}")
    return [f"Not every row has the same seeds: {'; '.join(missing)}."] if missing else []


def _averages(runs: Sequence[RunResult]) -> list[str]:
    """Runs whose averaged weights have a higher validation loss than their last weights."""
    scored: list[float] = []
    refused: list[float] = []
    for run in runs:
        if (lost := _lost(run)) is not None:
            if run.figure("weights.scored") == "last":
                refused += [lost] if lost > 0 else []
            elif lost > CLEARLY and run.figure("weights.valid_bleu") is None:  # else BLEU chose the weights
                scored.append(lost)
    lines = []
    if scored:
        lines.append(
            f"The scored weights are worse than the last by {_range(scored)} nats of validation loss in {len(scored)} "
            f"of {len(runs)} runs: the weights were averaged over too many updates. Such scores are too low, most of "
            "all in rows that learn late."
        )
    if refused:
        lines.append(
            f"The average lost in {len(refused)} of {len(runs)} runs: its validation loss was higher than that of the "
            f"last weights, by {_range(refused)} nats. There the last weights were scored."
        )
    return lines


def _lost(run: RunResult) -> float | None:
    """The validation loss of the averaged weights minus that of the last weights, in nats; None if unknown.

    An older run has the loss of its scored weights in metrics.json, and that of its last weights in its log. A run that
    scored its best checkpoint has no average.
    """
    average, last = run.figure("weights.valid_loss.average"), run.figure("weights.valid_loss.last")
    curve = run.curves.get("valid/loss")
    averaged = at(run.config, "averaging.kind") != "best"
    if averaged and not finite(last) and curve and curve[-1][0] == run.figure("train.steps"):
        average, last = run.figure("valid.loss"), curve[-1][1]
    return average - last if finite(average) and finite(last) else None


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2g}", f"{max(values):.2g}"
    return low if low == high else f"{low} to {high}"


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
