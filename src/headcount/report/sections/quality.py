"""Quality: BLEU and validation loss of every run, and the mean of each row."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from headcount.report.axes import COLOURS, Scale, plot
from headcount.report.blocks import Plots, Section
from headcount.report.drawing import Plot
from headcount.report.statistics.comparison import Comparison
from headcount.report.study import Study

DOT = "#8a8f98"


def section(study: Study) -> Section:
    plots = [bleu_plot(study)]
    if study.loss:
        plots.append(_plot(study, "loss", "validation loss, nats", study.losses, study.loss))
    interval = ", with the 95 % interval over seeds" if study.endpoint.comparison.spread else ""
    return Section("Quality", (f"A dot is a run; a diamond the mean of its row{interval}.", Plots(tuple(plots))))


def bleu_plot(study: Study) -> Plot:
    return _plot(study, "bleu", study.endpoint.name, study.endpoint.scores, study.endpoint.comparison)


def _plot(study: Study, name: str, title: str, scores: Sequence[Sequence[float]], comparison: Comparison) -> Plot:
    scale = Scale.of(study.sweep)

    def draw(axes: Axes) -> None:
        scale.dots(axes, scores, DOT)
        margins = [comparison.margin(row) or 0.0 for row in range(len(study.rows))]
        axes.errorbar(
            scale.at, comparison.means, margins, color=COLOURS[0], marker="D", markersize=6, capsize=4,
            linestyle=scale.line, linewidth=1.2, zorder=3,
        )  # fmt: skip
        scale.apply(axes)
        axes.set_title(title)

    return plot(name, f"{title} by {study.sweep.design.label or 'row'}", draw)
