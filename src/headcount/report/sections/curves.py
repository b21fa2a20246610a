"""Learning curves: validation loss and BLEU over steps."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from headcount.report.axes import Scale, legend, plot, style_of
from headcount.report.blocks import Plots, Section
from headcount.report.drawing import Plot
from headcount.report.study import Study

CURVES = (  # name of the plot, column of the log, title
    ("curve_loss", "valid/loss", "validation loss"),
    ("curve_bleu", "valid/bleu", "validation BLEU, greedy"),
)

Curve = Sequence[tuple[int, float]]


def section(study: Study) -> Section | None:
    plots = []
    for name, column, title in CURVES:
        curves = [[run.curves.get(column, ()) for run in row.runs] for row in study.rows]
        if any(curve for row in curves for curve in row):
            plots.append(_plot(study, name, title, curves))
    return Section("Learning curves", (Plots(tuple(plots)),)) if plots else None


def _plot(study: Study, name: str, title: str, rows: Sequence[Sequence[Curve]]) -> Plot:
    """The mean of each row as a line, and a thin line for each seed."""

    def draw(axes: Axes) -> None:
        for index, (label, curves) in enumerate(zip(Scale.of(study.sweep).labels, rows, strict=True)):
            colour, marker = style_of(index)
            for curve in curves:
                axes.plot(*_columns(curve), color=colour, linewidth=0.7, alpha=0.4)
            steps, means = _columns(_mean([curve for curve in curves if curve]))
            axes.plot(
                steps, means, color=colour, marker=marker, linewidth=1.8, markersize=5, label=label,
                markevery=max(len(steps) // 6, 1),
            )  # fmt: skip
        axes.set_xlabel("steps")
        axes.set_title(title)
        legend(axes, study.sweep)

    return plot(name, f"{title} over steps", draw)


def _columns(curve: Curve) -> tuple[list[int], list[float]]:
    return [step for step, _ in curve], [value for _, value in curve]


def _mean(curves: Sequence[Curve]) -> Curve:
    """The mean of curves at the steps that all of them have."""
    if not curves:
        return []
    values = [dict(curve) for curve in curves]
    steps = sorted(set.intersection(*(set(curve) for curve in values)))
    return [(step, sum(curve[step] for curve in values) / len(values)) for step in steps]
