"""Development over seeds: what appears first in training, the effect of a head or the behaviour of the model."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from headcount.heads.development import CURVES, emergence
from headcount.heads.over_seeds import Appearance, SeedMean, appearances
from headcount.heads.results import Row, Study, Subject
from headcount.heads.sections.over_seeds.summary import INTERVALS, forest, having, held, mean_row, seeds
from headcount.report.blocks import Plots, Section
from headcount.report.table import Table, interval

NOTE = (
    "Half-rise: the step at which a curve is halfway from its first to its last value, geometric mean over seeds. "
    "Accuracy and margin are those of the whole model; effect is the margin that removing a head costs, the head that "
    "matters most at the last step. Accuracy is bounded and rises early for that alone: compare effect and margin, "
    "which share their scale. The attention of heads at these steps is not measured, so roles are not in this order."
)
RATIO = (
    "Order: by the means over seeds; agree: seeds with the same order of all three. Effect over margin: the ratio of "
    "half-rise steps, above 1 where the effect comes later. Within seeds: those in which a test over pairs finds the "
    "effect first, the margin first, or cannot tell."
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
    columns = [each.phenomenon for each in next(iter(found.values()))]
    later = {f"{study.label} {label}": {each.phenomenon: each.ratio for each in own} for label, own in found.items()}
    words = "log2(effect / margin), half-rise steps"
    picture = forest(
        "appearance",
        "how much later than the margin the effect of the head rises, over seeds",
        later,
        columns,
        0,
        words,
    )
    lines = tuple(_line(label, each) for label, own in found.items() for each in own)
    titles = (
        study.label, "phenomenon", *(f"{curve}, step" for curve in CURVES), "order", "agree", "effect over margin",
        "effect, margin, cannot tell",
    )  # fmt: skip
    note = " ".join(filter(None, (RATIO, INTERVALS, held(study, rows))))
    section = Section(
        "Through training, over seeds", (NOTE, Plots((picture,)), Table(titles, lines, note, frozenset({0, 1, 5})))
    )
    return Subject(section, tuple(_rows(found)), tuple(_findings(found, study.label)))


def _line(label: str, each: Appearance) -> tuple[str, ...]:
    agree = f"{each.agree.found} of {each.agree.runs}" if each.agree else "–"
    verdicts = ", ".join(str(each.verdicts.get(name, 0)) for name in ("effect", "margin", "undecided"))
    steps = (_steps(each.steps[curve], each.runs) for curve in CURVES)
    ratio = _back(each.ratio, lambda value: 2**value, 2)
    return (label, each.phenomenon, *steps, ", ".join(each.order) or "–", agree, ratio, verdicts)


def _steps(each: SeedMean, runs: int) -> str:
    few = f", {seeds(each.runs)}" if 0 < each.runs < runs else ""
    return _back(each, np.expm1, 0) + few


def _back(each: SeedMean, scale: Callable[[float], float], digits: int) -> str:
    """A mean over logarithms, on the scale of its figure."""
    if not each.runs:
        return "does not rise"
    between = f" {interval((scale(each.low), scale(each.high)), digits)}" if each.runs > 1 else ""
    return f"{scale(each.mean):.{digits}f}{between}"


def _rows(found: Found) -> Iterator[Row]:
    for label, own in found.items():
        for each in own:
            for curve in CURVES:
                yield mean_row(
                    label, f"training.{curve}.log_half_rise", each.phenomenon, each.steps[curve], "log(1 + step)"
                )
            yield mean_row(
                label, "training.log2_effect_over_margin", each.phenomenon, each.ratio, "log2 of a ratio of steps"
            )


def _findings(found: Found, label: str) -> Iterator[str]:
    row = max(found, key=lambda row: max(each.runs for each in found[row]))
    sure = [each for each in found[row] if each.ratio.runs > 1]
    before, after = (sum(side(each.ratio) for each in sure) for side in (_below, _above))
    if sure:
        yield (
            f"{label} {row}: through training, the effect of the head that matters most rises before the margin in "
            f"{before} of {len(sure)} phenomena, after it in {after} (interval over {seeds(sure[0].runs)})."
        )


def _below(each: SeedMean) -> bool:
    return each.high < 0


def _above(each: SeedMean) -> bool:
    return each.low > 0
