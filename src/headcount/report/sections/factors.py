"""Interaction of two settings: a figure by one of them, with a line for each value of the other."""

from collections.abc import Sequence

from headcount.report.blocks import Plots, Section
from headcount.report.charts import BESIDE, Record, Rows, chart, chosen, dots, hover, layer, only, quantity, whiskers
from headcount.report.measures import measures
from headcount.report.plot import COLOURS, Plot
from headcount.report.runs import Row
from headcount.report.study import Study


def section(study: Study) -> Section | None:
    """None unless rows differ in two settings, one of them of whole numbers."""
    names = two_settings(study.rows)
    if names is None:
        return None
    legend = f"A dot is a run. A line joins the means of the rows that have the same {_short(names[1])}."
    plots = Plots((_plot(study, *names),), legend=legend)
    return Section(f"By {_short(names[0])} and {_short(names[1])}", (plots,))


def two_settings(rows: Sequence[Row]) -> tuple[str, str] | None:
    """The setting on the axis and the setting of the lines: of whole numbers above 0 the one with more values is on the
    axis. None where rows differ in another number of settings, or no value is in two rows."""
    names = list(rows[0].settings)
    if len(names) != 2 or any(list(row.settings) != names for row in rows):
        return None
    values = {name: {row.settings[name] for row in rows} for name in names}
    axes = [name for name in names if all(type(value) is int and value > 0 for value in values[name])]
    if not axes or len(rows) <= max(map(len, values.values())):
        return None
    axis = max(axes, key=lambda name: len(values[name]))
    return axis, names[1 - names.index(axis)]


def _plot(study: Study, axis: str, other: str) -> Plot:
    known, first = measures(study), study.endpoint.name
    rows = Rows([row.settings[axis] for row in study.rows], [row.label for row in study.rows], _short(axis))
    groups = [str(row.settings[other]) for row in study.rows]
    of_row = dict(zip(rows.labels, groups, strict=True))

    def grouped(records: Sequence[Record], measure: str) -> list[Record]:
        return [{**record, "group": of_row[record["row"]], "measure": measure} for record in records]

    runs = [run for each in known for run in grouped(rows.runs(study.sweep, each.scores), each.name)]
    means = [mean for each in known for mean in grouped(rows.means(each.comparison), each.name)]
    lines = list(dict.fromkeys(groups))
    scale = {"domain": lines, "range": [COLOURS[index % len(COLOURS)] for index in range(len(lines))]}
    colour = {"field": "group", "type": "nominal", "scale": scale, "title": _short(other)}
    x, y = rows.x, quantity("value")
    seen = hover(row="row", value="mean", low="95 % interval from", high="to")
    layers = [
        dots(runs, BESIDE, x=x, y=y, color=colour, tooltip=hover(row="row", seed="seed", value="value")),
        whiskers(means, x=x, y=quantity("low"), color=colour),
        layer({"type": "line", "point": {"size": 55}, "strokeWidth": 1.4}, means, x=x, y=y, color=colour, tooltip=seen),
    ]
    title = f"{first} by {_short(axis)} and {_short(other)}"
    return chart("factors", title, map(only, layers), **chosen([each.name for each in known], first))


def _short(name: str) -> str:
    return name.rpartition(".")[2]
