"""Five views of a tidy table, as Altair charts: heat map, ranked values, curves, intervals, graph.

A view takes a table and the names of its columns, and knows nothing about what they mean. Its numbers have six digits.
"""

import json
from collections.abc import Sequence
from typing import TypedDict, Unpack

import altair as alt
import pandas as pd

# Distinct to colour-blind readers, on light and on dark pages (after Tol 2021).
COLOURS = ("#3b82c4", "#e0762f", "#0f9f8a", "#cc4a5f", "#9a6cc9", "#a08a1f", "#2fa6d8", "#8a8a8a")
BLUE, RED = "59, 130, 196", "204, 74, 95"
INK = "currentColor"  # the colour of the page's text
WIDTH, HEIGHT = 420, 240  # pixels of a drawing without its axes
LINE = 18  # pixels of a line of text
LETTER = 6.5  # pixels of a letter
FIGURE = ".4~g"  # format of figures under the pointer
LABEL = 180  # pixels of the longest label
Chart = alt.LayerChart | alt.FacetChart
Column = str | None


class Shown(TypedDict, total=False):
    """Columns of any view. hover: more of them for the pointer. choose: one of its values is shown at a time, by a
    select below the chart."""

    hover: Sequence[str]
    choose: str


_TEXT = {"labelColor": INK, "titleColor": INK, "labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal"}
_LINES = dict.fromkeys(("domainColor", "tickColor", "gridColor"), INK)
CONFIG = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "title": {"color": INK, "fontSize": 13, "anchor": "start"},
    "axis": {**_TEXT, **_LINES, "gridOpacity": 0.12, "labelLimit": LABEL},
    "legend": {**_TEXT, "orient": "bottom", "columns": 4, "labelLimit": LABEL, "symbolOpacity": 1},
    "header": {"labelColor": INK, "titleColor": INK},
    "text": {"color": INK, "fontSize": 10},
    "rule": {"color": INK},
    "range": {"category": list(COLOURS)},
}


def heat_map(
    table: pd.DataFrame,
    *,
    x: str,
    y: str,
    value: str,
    text: Column = None,
    faint: Column = None,
    **shown: Unpack[Shown],
) -> Chart:
    """A cell for each x and y, in the order of the table: red above 0, blue below.

    text: the column that is written on the cells. faint: a column of truth values, of cells to be drawn pale.
    """
    frame, base = _base(table, shown, x=x, y=y, value=value, text=text, faint=faint)
    groups = dict(list(frame.groupby("choose", sort=False))) if "choose" in frame else {"": frame}
    ends = {str(name): float(group["value"].abs().fillna(0).max()) or 1.0 for name, group in groups.items()}
    domain: list[float | alt.ExprRef] = [-ends[""], 0, 0, ends[""]] if "choose" not in frame else [
        alt.ExprRef(f"-({json.dumps(ends)})[chosen]"), 0, 0, alt.ExprRef(f"({json.dumps(ends)})[chosen]")
    ]  # fmt: skip
    shades = [f"rgba({colour}, {share})" for colour, share in ((BLUE, 0.9), (BLUE, 0.04), (RED, 0.04), (RED, 0.9))]
    if frame["value"].min() >= 0:
        domain, shades = domain[2:], shades[2:]
    scale = alt.Scale(domain=domain, range=shades, interpolate="rgb")
    legend = alt.Legend(orient="right", gradientLength=120)
    cells = base.mark_rect().encode(alt.Color("value:Q", scale=scale, legend=legend).title(value))
    if faint:
        cells = cells.encode(opacity=alt.condition("datum.faint", alt.value(0.35), alt.value(1)))
    letters = base.mark_text().encode(alt.Text("text:N")) if text else None
    longest = max(map(len, frame["text"].astype(str)), default=0) if text else 0
    sides = alt.layer(*filter(None, (cells, letters))).encode(
        alt.X("x:N", sort=None).axis(orient="top", labelAngle=_angle(frame["x"], longest)).title(x),
        alt.Y("y:N", sort=None).title(y),
    )
    return _chosen(sides, frame, shown).properties(width=alt.Step(_step(longest)), height=alt.Step(LINE + 2))


def ranked(
    table: pd.DataFrame, *, label: str, value: str, low: Column = None, high: Column = None, **shown: Unpack[Shown]
) -> Chart:
    """A line for each label, from the largest value down: a bar, or a dot with its interval from low to high."""
    table = table.sort_values(value, ascending=False, kind="stable")
    frame, base = _base(table, shown, label=label, value=value, low=low, high=high)
    return _chosen(_lines(frame, base, label, value), frame, shown)


def forest(
    table: pd.DataFrame,
    *,
    label: str,
    value: str,
    low: str,
    high: str,
    colour: Column = None,
    at: float | None = 0,
    **shown: Unpack[Shown],
) -> Chart:
    """Intervals beside a line at `at` (none: without one), in the order of the table. colour: a column."""
    frame, base = _base(table, shown, label=label, value=value, low=low, high=high, colour=colour)
    return _chosen(_lines(frame, base, label, value, colour, at), frame, shown)


def curve(
    table: pd.DataFrame,
    *,
    x: str,
    y: str,
    colour: Column = None,
    low: Column = None,
    high: Column = None,
    **shown: Unpack[Shown],
) -> Chart:
    """A curve for each value of the column `colour`, with a band from low to high.

    A click in the legend picks curves.
    """
    frame, base = _base(table, shown, x=x, y=y, colour=colour, low=low, high=high)
    base = base.encode(alt.X("x:Q", scale=alt.Scale(zero=False)).title(x))
    up = alt.Y("y:Q").scale(zero=False).title(y)
    marks = [(base.mark_line().encode(up), 1.0), (base.mark_circle(size=30).encode(up), 1.0)]
    if low and high:
        up = alt.Y("low:Q").scale(zero=False).title(y)
        marks.insert(0, (base.mark_area(opacity=0.15).encode(up, alt.Y2("high:Q")), 0.15))
    if colour is None:
        layers = [mark.encode(color=alt.value(COLOURS[0])) for mark, _ in marks]
    else:
        picked = alt.selection_point(name="picked", fields=["colour"], bind="legend")
        lines = alt.Color("colour:N", sort=None).title(colour)
        layers = [
            mark.encode(lines, opacity=alt.when(picked).then(alt.value(opacity)).otherwise(alt.value(0.02)))
            for mark, opacity in marks
        ]
        layers[-1] = layers[-1].add_params(picked)
    return _chosen(alt.layer(*layers), frame, shown).properties(width=WIDTH, height=HEIGHT)


def graph(nodes: pd.DataFrame, edges: pd.DataFrame) -> Chart:
    """Nodes at places, and edges between them. nodes: columns name, x, y (from 0 at the top). edges: columns source,
    target, value; an edge is as wide as |value|, red above 0 and blue below."""
    places = nodes.set_index("name")[["x", "y"]]
    lines = (
        edges[["source", "target", "value"]]
        .join(places, on="source")
        .join(places.rename(columns={"x": "x2", "y": "y2"}), on="target")
    )
    lines = _rounded(lines.assign(size=lines["value"].abs(), sign=lines["value"] > 0))
    x, y = alt.X("x:Q", axis=None).scale(padding=40), alt.Y("y:Q", axis=None).scale(reverse=True, padding=20)
    colours = alt.Scale(domain=[True, False], range=[f"rgb({RED})", f"rgb({BLUE})"])
    drawn = alt.Chart(lines).mark_rule(opacity=0.7).encode(
        x, y, alt.X2("x2"), alt.Y2("y2"),
        alt.StrokeWidth("size:Q", legend=None).scale(range=[0.3, 7], domainMin=0),
        alt.Color("sign:N", scale=colours, legend=None),
        tooltip=["source:N", "target:N", alt.Tooltip("value:Q", format=FIGURE)],
    )  # fmt: skip
    points = alt.Chart(_rounded(nodes[["name", "x", "y"]])).encode(x, y, tooltip="name:N")
    names = points.mark_text(dy=-9).encode(text="name:N")
    high = max(HEIGHT, 2 * LINE * (nodes["y"].nunique() + 1))
    return alt.layer(drawn, points.mark_circle(size=50, color=COLOURS[-1], opacity=1), names).properties(
        width=WIDTH, height=high
    )


def _lines(
    frame: pd.DataFrame, base: alt.Chart, label: str, value: str, colour: Column = None, at: float | None = 0
) -> Chart:
    """Values one below the other, as dots with intervals, or as bars where there are none."""
    intervals = "low" in frame
    base = base.encode(alt.Y("label:N", sort=None).title(label), color=alt.value(COLOURS[0]))
    beside = colour is not None and bool(frame.duplicated(["label", *(["choose"] if "choose" in frame else [])]).any())
    if colour is not None:
        base = base.encode(color=alt.Color("colour:N", sort=None).title(colour))
    if beside:
        base = base.encode(yOffset=alt.YOffset("colour:N", sort=None))

    def across(field: str) -> alt.X:
        return alt.X(f"{field}:Q").scale(zero=not intervals).title(value)

    marks = []
    if at is not None:
        marks.append(alt.Chart(pd.DataFrame({"at": [at]})).mark_rule(opacity=0.5).encode(across("at")))
    if intervals:
        marks.append(base.mark_rule(strokeWidth=2, opacity=0.6).encode(across("low"), alt.X2("high:Q")))
        marks.append(base.mark_circle(size=60, opacity=1).encode(across("value")))
    else:
        marks.append(base.mark_bar(opacity=0.85).encode(across("value")))
    high = LETTER * 1.5 if beside else LINE
    return alt.layer(*marks).properties(width=WIDTH, height=alt.Step(high))


def _base(table: pd.DataFrame, shown: Shown, **roles: Column) -> tuple[pd.DataFrame, alt.Chart]:
    """The columns in question by their roles, and a chart of them; under the pointer are their figures."""
    roles["choose"] = shown.get("choose")
    named = {role: column for role, column in roles.items() if column is not None}
    more = [column for column in shown.get("hover", ()) if column not in named.values()]
    named |= {f"hover{place}": column for place, column in enumerate(more)}
    frame = _rounded(pd.DataFrame({role: table[column] for role, column in named.items()}))
    pointed = [role for role in named if role not in ("choose", "faint", "text")]
    tooltip = [
        alt.Tooltip(f"{role}:Q", format=FIGURE, title=named[role]) if _is_number(frame[role])
        else alt.Tooltip(f"{role}:N", title=named[role])
        for role in pointed
    ]  # fmt: skip
    chart = alt.Chart(frame).encode(tooltip=tooltip)
    return frame, chart.transform_filter("datum.choose == chosen") if "choose" in frame else chart


def _chosen(chart: Chart, frame: pd.DataFrame, shown: Shown) -> Chart:
    """The chart with a select of the values of the column to choose by, the first at first."""
    if "choose" not in frame:
        return chart
    options = [str(option) for option in frame["choose"].unique()]
    select = alt.binding_select(options=options, name=f"{shown['choose']} ")
    return chart.add_params(alt.param(name="chosen", value=options[0], bind=select))


def _is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _rounded(frame: pd.DataFrame) -> pd.DataFrame:
    """Numbers with six digits, which a drawing does not show; the page is smaller."""
    floats = frame.select_dtypes("float")
    return frame.assign(**{name: [float(f"{number:.6g}") for number in floats[name]] for name in floats})


def _angle(labels: pd.Series, longest: int) -> int:
    """The angle of labels above columns, which must not overlap. longest: letters of a cell's text."""
    return 0 if max(map(len, labels.astype(str)), default=0) * LETTER <= _step(longest) else -90


def _step(longest: int) -> float:
    """The width of a cell. longest: letters of its text."""
    return max(LINE + 2, LETTER * longest + 6)
