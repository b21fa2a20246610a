"""Quality against cost: BLEU over training time, and over parameters and operations if these differ between rows."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from headcount.report.axes import Scale, legend, plot, style_of
from headcount.report.blocks import Plots, Section
from headcount.report.drawing import Plot
from headcount.report.study import Study

COSTS = (  # name of the plot, figure, label, and the relative difference from which it is drawn
    ("seconds", "train.seconds", "seconds of training", 0.0),
    ("parameters", "parameters", "parameters", 0.01),
    ("operations", "operations_per_token", "multiply-adds per token", 0.01),
)


def section(study: Study) -> Section | None:
    plots = []
    for name, path, label, least in COSTS:
        costs = [row.figures(path) for row in study.rows]
        if any(len(values) < len(row.runs) for values, row in zip(costs, study.rows, strict=True)):
            continue
        means = [sum(values) / len(values) for values in costs]
        if max(means) > min(means) * (1 + least):
            plots.append(_plot(study, name, label, costs, means))
    return Section("Quality against cost", (Plots(tuple(plots)),)) if plots else None


def _plot(study: Study, name: str, label: str, costs: Sequence[Sequence[float]], means: Sequence[float]) -> Plot:
    endpoint = study.endpoint
    bleu = endpoint.comparison

    def draw(axes: Axes) -> None:
        names = Scale.of(study.sweep).labels
        for index, scores in enumerate(endpoint.scores):
            colour, marker = style_of(index)
            axes.plot(costs[index], scores, marker, color=colour, markersize=4, alpha=0.5)
            axes.errorbar(
                means[index], bleu.means[index], bleu.margin(index) or 0.0, color=colour, marker=marker,
                markersize=8, capsize=4, label=names[index], linestyle="none",
            )  # fmt: skip
        axes.xaxis.set_major_formatter(EngFormatter())
        axes.set_xlabel(label)
        axes.set_title(endpoint.name)
        legend(axes, study.sweep)

    return plot(f"bleu_by_{name}", f"{endpoint.name} by {label}", draw)
