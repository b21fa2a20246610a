"""Axes that plots of a report share: rows on the horizontal axis, and a colour and marker for each row."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes

from headcount.report.drawing import Plot
from headcount.report.runs import Sweep

# Distinct to colour-blind readers, on light and on dark pages (after Tol 2021).
COLOURS = ("#3b82c4", "#e0762f", "#0f9f8a", "#cc4a5f", "#9a6cc9", "#a08a1f", "#2fa6d8", "#8a8a8a")
MARKERS = "osD^vP*"  # one fewer, so that more rows than colours look different as well
LONGEST = 24  # characters of a label
SIZE = (4.8, 3.1)  # inches


def plot(name: str, title: str, draw: Callable[[Axes], None], size: tuple[float, float] = SIZE) -> Plot:
    """A plot with one pair of axes."""
    return Plot.of(name, title, lambda figure: draw(figure.add_subplot()), size)


class Scale:
    """Places of rows on the horizontal axis: positive whole numbers at their logarithm, anything else side by side."""

    def __init__(self, values: Sequence[object], labels: Sequence[str], name: str) -> None:
        self.logarithmic = all(isinstance(value, int) and not isinstance(value, bool) and value > 0 for value in values)
        self.at = (
            [float(str(value)) for value in values] if self.logarithmic else [float(i) for i in range(len(values))]
        )
        self.labels = [label if len(label) <= LONGEST else f"{label[: LONGEST - 1]}…" for label in labels]
        self._name = name

    @classmethod
    def of(cls, sweep: Sweep) -> "Scale":
        return cls([row.value for row in sweep.rows], [row.label for row in sweep.rows], sweep.design.label or "")

    @property
    def line(self) -> str:
        """The line style between rows: none where rows have no order."""
        return "-" if self.logarithmic else "none"

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

    def dots(self, axes: Axes, scores: Sequence[Sequence[float]], colour: str) -> None:
        """A dot for each run, above its row."""
        for x, row in zip(self.at, scores, strict=True):
            axes.plot([x] * len(row), row, "o", color=colour, markersize=4, alpha=0.6, zorder=2)


def style_of(index: int) -> tuple[str, str]:
    """The colour and the marker of a row or a line."""
    return COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]


def legend(axes: Axes, sweep: Sweep) -> None:
    # Beside the plot, where it hides no point.
    axes.legend(title=sweep.design.label, loc="center left", bbox_to_anchor=(1.0, 0.5), title_fontsize=8)
