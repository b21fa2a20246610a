"""Axes that drawings share: rows on the horizontal axis, and a colour and marker for each row."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes

from headcount.report import drawing
from headcount.report.plot import COLOURS, Plot, short

MARKERS = "osD^vP*"  # one fewer than colours, so that more rows than colours look different as well
SIZE = (4.8, 3.1)  # inches


def plot(name: str, title: str, draw: Callable[[Axes], None], size: tuple[float, float] = SIZE) -> Plot:
    """A plot with one pair of axes."""
    return drawing.drawn(name, title, lambda figure: draw(figure.add_subplot()), size)


class Scale:
    """Places of rows on the horizontal axis: positive whole numbers at their logarithm, anything else side by side."""

    def __init__(self, values: Sequence[object], labels: Sequence[str], name: str) -> None:
        self.logarithmic = all(isinstance(value, int) and not isinstance(value, bool) and value > 0 for value in values)
        self.at = (
            [float(str(value)) for value in values] if self.logarithmic else [float(i) for i in range(len(values))]
        )
        self.labels = [short(label) for label in labels]
        self._name = name

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


def style_of(index: int) -> tuple[str, str]:
    """The colour and the marker of a row or a line."""
    return COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
