"""Five views of a tidy table, as Altair charts: heat map, ranked values, curves, intervals, graph.

A view takes a table and the names of its columns, and knows nothing about what they mean. Its numbers have six digits.
"""

import json
from collections.abc import Sequence

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
    text: str | None = None,
    hover: Sequence[str] = (),
    faint: str | None = None,
    choose: str | None = None,
) -> alt.LayerChart:
    """A cell for each x and y, in the order of the table: red above 0, blue below.

    text: the column that is written on the cells. hover: more columns, for the pointer. faint: a column of truth
    values, of cells to be drawn pale. choose: a column of which one value is shown at a time, by a select below.
    """
    frame, base = _base(table, hover, x=x, y=y, value=value, text=text, faint=faint, choose=choose)
    groups = {"": frame} if choose is None else dict(list(frame.groupby("choose", sort=False)))
    ends = {str(name): float(group["value"].abs().max()) or 1.0 for name, group in groups.items()}
    domain: list[float | alt.ExprRef] = [-ends[""], 0, 0, ends[""]] if choose is None else [
        alt.ExprRef(f"-({json.dumps(ends)})[chosen]"), 0, 0, alt.ExprRef(f"({json.dumps(ends)})[chosen]")
    ]  # fmt: skip
    shades = [f"rgba({colour}, {share})" for colour, share in ((BLUE, 0.9), (BLUE, 0.04), (RED, 0.04), (RED, 0.9))]
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
    return _chosen(sides, frame, choose).properties(width=alt.Step(_step(longest)), height=alt.Step(LINE + 2))


def ranked(
    table: pd.DataFrame,
    *,
    label: str,
    value: str,
    low: str | None = None,
    high: str | None = None,
    hover: Sequence[str] = (),
    choose: str | None = None,
) -> alt.LayerChart:
    """A line for each label, from the largest value down: a bar, or a dot with its interval from low to high."""
    table = table.sort_values(value, ascending=False, kind="stable")
    frame, base = _base(table, hover, label=label, value=value, low=low, high=high, choose=choose)
    return _chosen(_lines(frame, base, label, value), frame, choose)


def forest(
    table: pd.DataFrame,
    *,
    label: str,
    value: str,
    low: str,
    high: str,
    colour: str | None = None,
    hover: Sequence[str] = (),
    choose: str | None = None,
    at: float = 0,
) -> alt.LayerChart:
    """Intervals beside a line at `at`, in the order of the table. colour: a column; its values are a line each."""
    frame, base = _base(table, hover, label=label, value=value, low=low, high=high, colour=colour, choose=choose)
    return _chosen(_lines(frame, base, label, value, colour, at), frame, choose)


def curve(
    table: pd.DataFrame,
    *,
    x: str,
    y: str,
    colour: str | None = None,
    low: str | None = None,
    high: str | None = None,
    log: bool = False,
    hover: Sequence[str] = (),
    choose: str | None = None,
) -> alt.LayerChart:
    """A curve for each value of the column `colour`, with a band from low to high. log: whether x is logarithmic.

    A click in the legend picks curves.
    """
    frame, base = _base(table, hover, x=x, y=y, colour=colour, low=low, high=high, choose=choose)
    across = alt.X("x:Q", scale=alt.Scale(type="log" if log else "linear", zero=False, nice=not log)).title(x)
    base = base.encode(across)
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
    return _chosen(alt.layer(*layers), frame, choose).properties(width=WIDTH, height=HEIGHT)


def graph(nodes: pd.DataFrame, edges: pd.DataFrame) -> alt.LayerChart:
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
    frame: pd.DataFrame, base: alt.Chart, label: str, value: str, colour: str | None = None, at: float = 0
) -> alt.LayerChart:
    """Values one below the other, as dots with intervals, or as bars where there are none."""
    intervals = "low" in frame
    base = base.encode(alt.Y("label:N", sort=None).title(label), color=alt.value(COLOURS[0]))
    if colour is not None:
        base = base.encode(
            color=alt.Color("colour:N", sort=None).title(colour), yOffset=alt.YOffset("colour:N", sort=None)
        )
    x = alt.X("value:Q").scale(zero=not intervals).title(value)
    marks = [alt.Chart(pd.DataFrame({"at": [at]})).mark_rule(opacity=0.5).encode(alt.X("at:Q").title(value))]
    if intervals:
        marks.append(base.mark_rule(strokeWidth=2, opacity=0.6).encode(alt.X("low:Q").title(value), alt.X2("high:Q")))
        marks.append(base.mark_circle(size=60, opacity=1).encode(x))
    else:
        marks.append(base.mark_bar(opacity=0.85).encode(x))
    high = LINE if colour is None else LETTER * 1.5
    return alt.layer(*marks).properties(width=WIDTH, height=alt.Step(high))


def _base(table: pd.DataFrame, hover: Sequence[str], **roles: str | None) -> tuple[pd.DataFrame, alt.Chart]:
    """The columns in question by their roles, and a chart of them; under the pointer are their figures and `hover`."""
    named = {role: column for role, column in roles.items() if column is not None}
    named |= {f"hover{place}": column for place, column in enumerate(hover) if column not in named.values()}
    frame = _rounded(pd.DataFrame({role: table[column] for role, column in named.items()}))
    shown = [role for role in named if role not in ("choose", "faint", "text")]
    tooltip = [
        alt.Tooltip(f"{role}:Q", format=FIGURE, title=named[role]) if _is_number(frame[role])
        else alt.Tooltip(f"{role}:N", title=named[role])
        for role in shown
    ]  # fmt: skip
    chart = alt.Chart(frame).encode(tooltip=tooltip)
    return frame, chart.transform_filter("datum.choose == chosen") if "choose" in frame else chart


def _chosen(chart: alt.LayerChart, frame: pd.DataFrame, choose: str | None) -> alt.LayerChart:
    """The chart with a select of the values of the column `choose`, the first at first."""
    if choose is None:
        return chart
    options = [str(option) for option in frame["choose"].unique()]
    select = alt.binding_select(options=options, name=f"{choose} ")
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
