"""Development over seeds: what appears first in training, the effect of a head or the behaviour of the model."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from headcount.heads.development import CURVES, emergence
from headcount.heads.over_seeds import Appearance, SeedMean, appearances, found_by
from headcount.heads.results import Row, Study, Subject
from headcount.heads.sections.over_seeds.summary import INTERVALS, having, held, mean_row, seeds
from headcount.report.blocks import Section
from headcount.report.table import Table, interval

NOTE = (
    "Half-rise: the step at which a curve is halfway from its first to its last value, geometric mean over the seeds "
    "in which it rises. Accuracy and margin are those of the whole model; effect is the margin that removing a head "
    "costs, the head that matters most at the last step. Accuracy is bounded and rises early for that alone: compare "
    "effect and margin, which share their scale. Weights were kept at the steps {steps}; those between are "
    "interpolated, so half-rises within one gap say little. The attention of heads at these steps is not measured."
)
ORDER = (
    "First: by a t test over seeds, all phenomena and rows at once (Holm). Within seeds: those in which a test over "
    "pairs, all phenomena at once, finds the effect first, the margin first, or cannot tell."
)
Found = Mapping[str, Sequence[Appearance]]


def subject(study: Study) -> Subject | None:
    """The half-rise steps of each phenomenon, their order, and the seeds that agree."""
    runs = {
        label: [run for run in own if len(run.parts["training"]["phenomenon"])]
        for label, own in having(study, "training").items()
    }
    rows = {label: own for label, own in runs.items() if own}
    if not rows:
        return None
    found = {label: appearances([emergence(run.parts["training"]) for run in own]) for label, own in rows.items()}
    cells = {(label, each.phenomenon): each.later for label, own in found.items() for each in own}
    sure = found_by({at: later.p(0) for at, later in cells.items()})
    first = {at: ("effect" if later.mean < 0 else "margin") if at in sure else "" for at, later in cells.items()}
    lines = tuple(_line(label, each, first[label, each.phenomenon]) for label, own in found.items() for each in own)
    titles = (
        study.label, "phenomenon", *(f"{curve}, step" for curve in CURVES), "first", "effect, margin, cannot tell",
    )  # fmt: skip
    kept = dict.fromkeys(", ".join(map(str, run.parts["training"]["step"])) for own in rows.values() for run in own)
    note = " ".join(filter(None, (ORDER, INTERVALS, held(study, rows))))
    table = Table(titles, lines, note, frozenset({0, 1, 5}))
    section = Section("Through training, over seeds", (NOTE.format(steps="; or ".join(kept)), table))
    return Subject(section, tuple(_rows(found)), tuple(_findings(first, study.label)))


def _line(label: str, each: Appearance, first: str) -> tuple[str, ...]:
    verdicts = ", ".join(str(each.verdicts.get(name, 0)) for name in ("effect", "margin", "undecided"))
    steps = (_steps(each.steps[curve], each.runs) for curve in CURVES)
    return (label, each.phenomenon, *steps, first or "undecided", verdicts)


def _steps(each: SeedMean, runs: int) -> str:
    if not each.runs:
        return "no rise is shown"
    few = f", {seeds(each.runs)}" if each.runs < runs else ""
    low, high = np.expm1([each.low, each.high])
    return f"{np.expm1(each.mean):.0f}{'' if np.isnan(low) else f' {interval((low, high), 0)}'}{few}"


def _rows(found: Found) -> Iterator[Row]:
    for label, own in found.items():
        for each in own:
            for curve, step in each.steps.items():
                yield mean_row(label, f"training.{curve}.log_half_rise", each.phenomenon, step, "log(1 + step)")


def _findings(first: Mapping[tuple[str, str], str], label: str) -> Iterator[str]:
    for row in dict.fromkeys(row for (row, _), name in first.items() if name):
        names = [name for (own, _), name in first.items() if own == row]
        yield (
            f"{label} {row}: through training, the effect of the head that matters most rises before the margin in "
            f"{names.count('effect')} of {len(names)} phenomena, after it in {names.count('margin')} (over seeds)."
        )
