"""What a reader must know before reading on: runs that diverged, an average that lost, rows that differ in more."""

from collections.abc import Sequence
from typing import Any

from headcount.report.runs import RunResult, Sweep, finite
from headcount.report.verdicts import listed
from headcount.run.values import at

CONSTANT = 0.01  # by how much a quantity may differ that a study claims to hold constant
CLEARLY = 0.01  # nats, more than rounding does to the loss of the same weights in two precisions


def flagged(sweep: Sweep) -> list[str]:
    """A line each, the gravest first."""
    runs = sweep.runs
    found = [*_diverged(runs), *_averages(runs), *_inconstant(sweep), *_same(sweep)]
    return [*found, *_vocabularies(sweep), *_machines(runs)]


def _diverged(runs: Sequence[RunResult]) -> list[str]:
    return [
        f"{run.name} has no finite validation perplexity: it seems to have diverged."
        for run in runs
        if run.figure("valid.ppl") is not None and not finite(run.figure("valid.ppl"))
    ]


def _averages(runs: Sequence[RunResult]) -> list[str]:
    """Lines for runs whose averaged weights have a higher validation loss than their last ones."""
    scored: list[float] = []
    refused: list[float] = []
    for run in runs:
        if (lost := _lost(run)) is not None:
            if run.figure("weights.scored") == "last":
                refused += [lost] if lost > 0 else []
            elif lost > CLEARLY and run.figure("weights.valid_bleu") is None:  # which else decided
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
    """By how many nats the average is worse than the last weights on validation; None where a run does not say.

    An old run has the loss of what was scored, and that of the last weights in its log; one that scored its best
    checkpoint averaged nothing.
    """
    average, last = run.figure("weights.valid_loss.average"), run.figure("weights.valid_loss.last")
    curve = run.curves.get("valid/loss")
    averaged = not str(at(run.config, "averaging._target_")).endswith("BestCheckpoint")
    if averaged and not finite(last) and curve and curve[-1][0] == run.figure("train.steps"):
        average, last = run.figure("valid.loss"), curve[-1][1]
    return average - last if finite(average) and finite(last) else None


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2g}", f"{max(values):.2g}"
    return low if low == high else f"{low} to {high}"


def _inconstant(sweep: Sweep) -> list[str]:
    """A line for each quantity that the study claims constant and that is not, or that a run lacks."""
    lines = []
    for path in sweep.design.constant:
        values = [row.figures(path) for row in sweep.rows]
        if sum(map(len, values)) < len(sweep.runs):
            lines.append(f"{path} is said to be constant, but not every run has it, so that it can't be checked.")
            continue
        low, high = min(map(min, values)), max(map(max, values))
        if high > low * (1 + CONSTANT):
            means = listed(
                [f"{sum(own) / len(own):,.0f} ({row.label})" for row, own in zip(sweep.rows, values, strict=True)]
            )
            lines.append(f"{path} is said to be constant, but differs by {100 * (high / low - 1):.1f} %: {means}.")
    return lines


def _same(sweep: Sweep) -> list[str]:
    """A line where several seeds of every row have one and the same score."""
    if any(len(row.runs) > 1 for row in sweep.rows) and all(
        len(set(row.figures("test.bleu"))) == 1 for row in sweep.rows
    ):
        return ["The runs of each row have the very same test BLEU, as if the seed had not reached the training."]
    return []


def _vocabularies(sweep: Sweep) -> list[str]:
    if any(name.startswith(("tokenizer.", "data.vocab_size")) for name in sweep.differing):
        return [
            "The rows have different vocabularies, so that their losses and perplexities, which are per piece, can't "
            "be compared."
        ]
    return []


def _machines(runs: Sequence[RunResult]) -> list[str]:
    """Lines for what differs among runs that should not, were they to be timed, or repeated."""
    lines = []
    for path, what in (
        ("hardware", "seconds and tokens/s can't be compared"),
        ("train.precision", "seconds and tokens/s can't be compared, and rounding differs"),
        ("versions", "figures may differ for that reason"),
    ):
        found: dict[str, list[str]] = {}
        for run in runs:
            found.setdefault(as_words(run.figure(path)), []).append(run.name)
        if len(found) > 1:
            each = "; ".join(
                f"{value} ({len(own)} {'run' if len(own) == 1 else 'runs'})" for value, own in found.items()
            )
            lines.append(f"The runs differ in their {path.rpartition('.')[2]}, so that {what}: {each}.")
    return lines


def as_words(node: Any) -> str:
    """A node of metrics.json as a sentence shows it."""
    if isinstance(node, dict):
        return ", ".join(f"{name} {as_words(value)}" for name, value in node.items())
    return "none" if node is None else str(node)
