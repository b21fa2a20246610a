"""The plots of a report on a sweep."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from headcount.report.contrastive import ALL, Cell
from headcount.report.drawing import INK, Plot, drawn
from headcount.report.endpoint import Endpoint
from headcount.report.lengths import LengthGroup
from headcount.report.published import Published
from headcount.report.statistics.comparison import Comparison
from headcount.report.study import Sweep

# Distinct to colour-blind readers, on light and on dark pages (after Tol 2021).
COLOURS = ("#3b82c4", "#e0762f", "#0f9f8a", "#cc4a5f", "#9a6cc9", "#a08a1f", "#2fa6d8", "#8a8a8a")
MARKERS = "osD^vP*"  # one fewer, so that more rows than colours look different as well
DOT = "#8a8f98"
LONGEST = 24  # characters of a label
SIZE, SMALL = (4.8, 3.1), (3.4, 2.4)


@contextmanager
def _drawn(name: str, title: str, into: list[Plot], size: tuple[float, float] = SIZE) -> Iterator[Axes]:
    with drawn(name, title, into, size) as figure:
        yield figure.add_subplot()


class _Scale:
    """Where rows stand on the horizontal axis: whole numbers at their logarithm, anything else side by side."""

    def __init__(self, values: Sequence[object], labels: Sequence[str], name: str) -> None:
        self.logarithmic = all(isinstance(value, int) and not isinstance(value, bool) and value > 0 for value in values)
        self.at = (
            [float(str(value)) for value in values] if self.logarithmic else [float(i) for i in range(len(values))]
        )
        self.labels = [label if len(label) <= LONGEST else f"{label[: LONGEST - 1]}…" for label in labels]
        self._name = name

    def apply(self, axes: Axes) -> None:
        if self.logarithmic:
            axes.set_xscale("log", base=2)
            axes.set_xlim(min(self.at) / 2**0.5, max(self.at) * 2**0.5)
        else:
            axes.set_xlim(-0.5, len(self.at) - 0.5)
        long = sum(map(len, self.labels)) > 34
        axes.set_xticks(self.at, self.labels, rotation=20 if long else 0, ha="right" if long else "center")
        axes.minorticks_off()
        axes.set_xlabel(self._name)


def _scale(sweep: Sweep) -> _Scale:
    return _Scale([row.value for row in sweep.rows], [row.label for row in sweep.rows], sweep.study.label or "")


def quality_plots(sweep: Sweep, endpoint: Endpoint, loss: Comparison | None) -> list[Plot]:
    """BLEU and loss over the rows: every seed a dot, the mean with its 95 % interval over seeds."""
    plots: list[Plot] = []
    losses = [row.figures("valid.loss") for row in sweep.rows]
    shown: list[tuple[str, str, Sequence[Sequence[float]], Comparison | None]] = [
        ("bleu", endpoint.name, endpoint.scores, endpoint.comparison),
        ("loss", "validation loss, nats", losses, loss),
    ]
    scale = _scale(sweep)
    for name, title, scores, comparison in shown:
        if comparison is None:
            continue
        with _drawn(name, f"{title} by {sweep.study.label or 'row'}", plots) as axes:
            _seeds(axes, scale, scores, DOT)
            margins = [comparison.margin(row) or 0.0 for row in range(len(sweep.rows))]
            line = "-" if scale.logarithmic else "none"
            axes.errorbar(
                scale.at, comparison.means, margins, color=COLOURS[0], marker="D", markersize=6, capsize=4,
                linestyle=line, linewidth=1.2, zorder=3,
            )  # fmt: skip
            scale.apply(axes)
            axes.set_title(title)
    return plots


def _seeds(axes: Axes, scale: _Scale, scores: Sequence[Sequence[float]], colour: str) -> None:
    """A dot a run over its row."""
    for x, row in zip(scale.at, scores, strict=True):
        axes.plot([x] * len(row), row, "o", color=colour, markersize=4, alpha=0.6, zorder=2)


def cost_plots(sweep: Sweep, endpoint: Endpoint) -> list[Plot]:
    """BLEU over training time, and over parameters and operations where these differ among rows."""
    plots: list[Plot] = []
    names = _scale(sweep).labels
    bleu = endpoint.comparison
    costs = (
        ("seconds", "train.seconds", "seconds of training", 0.0),
        ("parameters", "parameters", "parameters", 0.01),
        ("operations", "operations_per_token", "multiply-adds per token", 0.01),
    )
    for name, path, label, least in costs:
        found = [row.figures(path) for row in sweep.rows]
        if any(len(values) < len(row.runs) for values, row in zip(found, sweep.rows, strict=True)):
            continue
        means = [sum(values) / len(values) for values in found]
        if max(means) <= min(means) * (1 + least):
            continue
        with _drawn(f"bleu_by_{name}", f"{endpoint.name} by {label}", plots) as axes:
            for index, scores in enumerate(endpoint.scores):
                colour, marker = _look(index)
                axes.plot(found[index], scores, marker, color=colour, markersize=4, alpha=0.5)
                axes.errorbar(
                    means[index], bleu.means[index], bleu.margin(index) or 0.0, color=colour, marker=marker,
                    markersize=8, capsize=4, label=names[index], linestyle="none",
                )  # fmt: skip
            axes.xaxis.set_major_formatter(EngFormatter())
            axes.set_xlabel(label)
            axes.set_title(endpoint.name)
            _legend(axes, sweep)
    return plots


def curve_plots(sweep: Sweep) -> list[Plot]:
    """Validation loss and BLEU over steps: a line a row, the mean of its seeds, and a thin line a seed."""
    plots: list[Plot] = []
    for name, column, title in (
        ("curve_loss", "valid/loss", "validation loss"),
        ("curve_bleu", "valid/bleu", "validation BLEU, greedy"),
    ):
        lines = [[run.curves.get(column, ()) for run in row.runs] for row in sweep.rows]
        if not any(curve for row in lines for curve in row):
            continue
        with _drawn(name, f"{title} over steps", plots) as axes:
            for index, (label, curves) in enumerate(zip(_scale(sweep).labels, lines, strict=True)):
                colour, marker = _look(index)
                for curve in curves:
                    axes.plot(*_columns(curve), color=colour, linewidth=0.7, alpha=0.4)
                steps, means = _columns(_mean([curve for curve in curves if curve]))
                axes.plot(
                    steps, means, color=colour, marker=marker, linewidth=1.8, markersize=5, label=label,
                    markevery=max(len(steps) // 6, 1),
                )  # fmt: skip
            axes.set_xlabel("steps")
            axes.set_title(title)
            _legend(axes, sweep)
    return plots


def contrastive_plots(sweep: Sweep, cells: Sequence[Cell]) -> list[Plot]:
    """Accuracy by phenomenon over the rows, a line a grade, a dot a run, and where chance is."""
    plots: list[Plot] = []
    scale = _scale(sweep)
    lowest = min((score for cell in cells for row in cell.scores for score in row), default=50.0)
    for phenomenon in dict.fromkeys(cell.phenomenon for cell in cells):
        title = "mean of all phenomena" if phenomenon == ALL else phenomenon
        name = "contrastive_" + re.sub(r"\W+", "_", phenomenon)
        with _drawn(name, f"contrastive accuracy: {title}", plots, SMALL) as axes:
            for index, cell in enumerate(cell for cell in cells if cell.phenomenon == phenomenon):
                colour, marker = _look(index)
                _seeds(axes, scale, cell.scores, colour)
                margins = [cell.comparison.margin(row) or 0.0 for row in range(len(sweep.rows))]
                ends = [
                    (
                        min(margin, mean),
                        max(min(margin, 100 - mean), 0.0),
                    )  # an accuracy is no less than 0 and no more than 100 %
                    for margin, mean in zip(margins, cell.comparison.means, strict=True)
                ]
                style = "-" if scale.logarithmic else "none"
                axes.errorbar(
                    scale.at, cell.comparison.means, list(zip(*ends, strict=True)), color=colour, marker=marker,
                    markersize=5, capsize=3, linestyle=style, linewidth=1.2, label=cell.grade,
                )  # fmt: skip
            axes.axhline(50, color=INK, linewidth=0.8, linestyle=":")
            axes.set_ylim(min(45, lowest - 5), 102)
            scale.apply(axes)
            axes.set_title(f"{title}, %")
            axes.legend(loc="best")
    return plots


def length_plots(sweep: Sweep, groups: Sequence[LengthGroup]) -> list[Plot]:
    """BLEU over groups of sentences from short to long, a line a row."""
    plots: list[Plot] = []
    at = range(len(groups))
    with _drawn("bleu_by_length", "BLEU by length of the reference", plots) as axes:
        for index, label in enumerate(_scale(sweep).labels):
            colour, marker = _look(index)
            means = [group.comparison.means[index] for group in groups]
            axes.plot(at, means, color=colour, marker=marker, markersize=5, linewidth=1.2, label=label)
        axes.set_xticks(at, [group.label for group in groups])
        axes.set_xlabel("tokens of the reference")
        axes.set_title("BLEU")
        _legend(axes, sweep)
    return plots


def published_plots(tables: Sequence[Published]) -> list[Plot]:
    """BLEU of papers, each in a plot of its own."""
    plots: list[Plot] = []
    for table in tables:
        if len(table.rows) < 2:
            continue
        values = [row.value for row in table.rows]
        scale = _Scale(values, [str(value) for value in values], table.label)
        with _drawn(f"published_{table.key}", f"BLEU in {table.source}".replace('"', "'"), plots) as axes:
            style = "-" if scale.logarithmic else "none"
            axes.plot(scale.at, [row.bleu for row in table.rows], marker="s", color=COLOURS[1], linestyle=style)
            scale.apply(axes)
            axes.set_title(f"{table.source.partition(',')[0]}: BLEU, {table.convention.partition(',')[0]}", fontsize=9)
    return plots


def _look(index: int) -> tuple[str, str]:
    return COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]


def _legend(axes: Axes, sweep: Sweep) -> None:
    # Beside the plot, where it hides no point.
    axes.legend(title=sweep.study.label, loc="center left", bbox_to_anchor=(1.0, 0.5), title_fontsize=8)


def _columns(curve: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [step for step, _ in curve], [value for _, value in curve]


def _mean(curves: Sequence[Sequence[tuple[int, float]]]) -> list[tuple[int, float]]:
    """The mean of curves at the steps that all of them have."""
    if not curves:
        return []
    known = [dict(curve) for curve in curves]
    steps = sorted(set.intersection(*(set(curve) for curve in known)))
    return [(step, sum(curve[step] for curve in known) / len(known)) for step in steps]
