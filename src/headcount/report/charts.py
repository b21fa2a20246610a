"""Charts as Vega-Lite: one specification for the interactive page and for SVG."""

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import vl_convert

from headcount.report.plot import COLOURS, Plot, short
from headcount.report.runs import Sweep
from headcount.statistics.comparison import Comparison

Spec = dict[str, Any]
Record = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
INK = "currentColor"  # the colour of the page's text
GREY = "#8a8f98"
BASE = "https://vega.github.io/vega-datasets/"  # vl-convert puts it before links within the page
SHAPES = ("circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "triangle-right")
MEAN: Spec = {"type": "point", "size": 80, "filled": True, "opacity": 1}
BESIDE = 9  # pixels from a mean to the dots of its runs
WIDTH, HEIGHT = 400, 230  # pixels of the drawing without its axes
LETTER, SYMBOL = 7, 26  # pixels of a letter in a legend, and of its symbol
FIGURE = ".5~g"  # format of figures
WORDS = ("row", "seed", "grade", "group", "pair", "verdict")  # fields that are text
CONFIG: Spec = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "title": {"color": INK, "fontSize": 13, "anchor": "start"},
    "axis": {
        **dict.fromkeys(("labelColor", "titleColor", "domainColor", "tickColor", "gridColor"), INK),
        "gridOpacity": 0.12,
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
    },
    "legend": {
        "labelColor": INK,
        "titleColor": INK,
        "orient": "bottom",
        "columns": 4,
        "symbolStrokeWidth": 2,
        "symbolOpacity": 1,
    },
}
# Rows are chosen by a click in the legend.
CHOSEN: Spec = {"name": "rows", "select": {"type": "point", "fields": ["row"]}, "bind": "legend"}


def chart(name: str, title: str, layers: Iterable[Spec], *, heading: str | Spec = "", **more: Any) -> Plot:
    """A chart of layers. name: of its files. title: its content in words. heading: above the chart. more: properties
    of Vega-Lite, such as its height."""
    spec = {"$schema": SCHEMA, "config": CONFIG, "width": WIDTH, "height": HEIGHT, "title": heading}
    text = json.dumps({**spec, **more, "layer": list(layers)}, ensure_ascii=False, separators=(",", ":"))
    return Plot(name, title, rendered(text), text)


def rendered(spec: str) -> str:
    """The SVG of a specification."""
    svg: str = vl_convert.vegalite_to_svg(spec)
    return svg.replace(BASE, "")


@functools.cache
def library() -> str:
    """Vega, Vega-Lite and Vega-Embed as a script, which sets `window.vegaEmbed`."""
    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def layer(mark: str | Spec, records: Iterable[Mapping[str, Any]], **encoding: Any) -> Spec:
    """Marks of the same kind, one for each record. encoding: channels of Vega-Lite."""
    return {"data": {"values": [dict(record) for record in records]}, "mark": mark, "encoding": encoding}


def whiskers(records: Iterable[Mapping[str, Any]], **encoding: Any) -> Spec:
    """Intervals from the field `low` to `high` on the vertical axis."""
    encoding |= {"y2": {"field": "high"}, "tooltip": hover(low="interval from", high="to")}
    return layer({"type": "errorbar", "ticks": True}, records, **encoding)


def number(value: float) -> float:
    """A number in few characters."""
    return float(f"{value:.6g}")


def quantity(field: str, title: str | None = None, **more: Any) -> Spec:
    """A channel of numbers, on an axis that need not include zero."""
    return {"field": field, "type": "quantitative", "scale": {"zero": False}, "title": title, **more}


def hover(**fields: str) -> list[Spec]:
    """What is shown of a mark under the pointer: fields and their titles."""
    return [
        {"field": field, "title": title, **({} if field in WORDS else {"format": FIGURE})}
        for field, title in fields.items()
    ]


class Rows:
    """Rows of a study in charts: places on the horizontal axis, colours and shapes, a record for each run.

    Positive whole numbers stand at their logarithm, anything else side by side.
    """

    def __init__(self, values: Sequence[object], labels: Sequence[str], name: str) -> None:
        self.logarithmic = all(isinstance(value, int) and not isinstance(value, bool) and value > 0 for value in values)
        shortened = [short(label) for label in labels]
        self.labels = shortened if len(set(shortened)) == len(set(labels)) else list(labels)  # no two are the same
        self.at: list[Any] = list(values) if self.logarithmic else self.labels
        self.name = name or "row"

    @classmethod
    def of(cls, sweep: Sweep) -> "Rows":
        return cls([row.value for row in sweep.rows], [row.label for row in sweep.rows], sweep.design.label or "")

    @property
    def x(self) -> Spec:
        if self.logarithmic:
            ends = [min(self.at) / 2**0.5, max(self.at) * 2**0.5]
            scale = {"type": "log", "base": 2, "domain": ends, "nice": False}
            axis = {"values": sorted(set(self.at)), "grid": False, "format": "d", "labelOverlap": False}
            return {"field": "at", "type": "quantitative", "scale": scale, "axis": axis, "title": self.name}
        angle = -20 if sum(map(len, self.labels)) > 40 else 0
        axis = {"labelAngle": angle, "labelLimit": 160}
        return {"field": "at", "type": "nominal", "scale": {"domain": self.labels}, "axis": axis, "title": self.name}

    @property
    def colour(self) -> Spec:
        return self._channel(COLOURS)

    @property
    def shape(self) -> Spec:
        return self._channel(SHAPES)

    def _channel(self, values: Sequence[str]) -> Spec:
        several = [values[index % len(values)] for index in range(len(self.labels))]
        scale = {"domain": self.labels, "range": several}
        columns = max(1, min(4, WIDTH // (LETTER * max(map(len, self.labels)) + SYMBOL)))  # as wide as the drawing
        return {
            "field": "row", "type": "nominal", "scale": scale, "title": self.name, "legend": {"columns": columns}
        }  # fmt: skip

    def record(self, index: int, **figures: float) -> Record:
        """A mark of a row."""
        return {
            "row": self.labels[index],
            "at": self.at[index],
            **{name: number(value) for name, value in figures.items()},
        }

    def runs(self, sweep: Sweep, scores: Sequence[Sequence[float]]) -> list[Record]:
        """A mark for each run, which leads to the run. scores: by row and run."""
        first = 0
        records = []
        for index, (row, values) in enumerate(zip(sweep.rows, scores, strict=True)):
            for place, (run, value) in enumerate(zip(row.runs, values, strict=True)):
                one = self.record(index, value=value)
                records.append({**one, "seed": str(run.seed), "href": f"#{anchor(first + place)}"})
            first += len(row.runs)
        return records

    def means(self, comparison: Comparison) -> list[Record]:
        """The mean of each row, with the ends of its interval over seeds if that is known."""
        records = []
        for index, mean in enumerate(comparison.means):
            half = comparison.half_width(index) or 0.0
            records.append(self.record(index, value=mean, low=mean - half, high=mean + half))
        return records


def chosen(options: Sequence[str], first: str) -> Spec:
    """Properties of a chart that shows one of several measures; `measure` names it."""
    return {
        "params": [
            {"name": "measure", "value": first, "bind": {"input": "select", "options": list(options), "name": ""}}
        ],
        "heading": {"text": {"expr": "measure"}},
    }


def only(marks: Spec) -> Spec:
    """The layer with the marks of the chosen measure alone."""
    return {**marks, "transform": [{"filter": "datum.measure == measure"}]}


def anchor(number: int) -> str:
    """The place of a run on the page. number: among all runs, from 0."""
    return f"run-{number + 1}"


def dots(records: Iterable[Record], beside: int = 0, **encoding: Any) -> Spec:
    """A dot for each run; it shows its figures, and leads to its run. beside: pixels to the right of its place, where
    the mark of the mean hides no dot."""
    mark = {"type": "circle", "size": 34, "opacity": 0.6, "cursor": "pointer", "xOffset": beside}
    return layer(mark, records, **{"href": {"field": "href"}, **encoding})


def faded(opacity: float = 1.0) -> Spec:
    """The opacity of rows: those that are not chosen are faint."""
    return {"condition": {"param": "rows", "value": opacity}, "value": 0.06}
