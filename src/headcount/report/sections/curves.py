"""Learning curves: validation loss and BLEU over steps."""

from collections.abc import Iterator, Sequence

from headcount.report.blocks import Plots, Section
from headcount.report.charts import CHOSEN, Record, Rows, anchor, chart, dots, faded, hover, layer, number, quantity
from headcount.report.plot import Plot
from headcount.report.runs import finite
from headcount.report.study import Study

CURVES = (  # name of the plot, column of the log, title
    ("curve_loss", "valid/loss", "validation loss"),
    ("curve_bleu", "valid/bleu", "validation BLEU, greedy"),
)
LEGEND = "A thin line is a run; a thick one the mean of its row, in the band from its lowest to its highest run."
MOST = 600  # points that show their figures

Curve = Sequence[tuple[int, float]]


def section(study: Study) -> Section | None:
    plots = []
    for name, column, title in CURVES:
        curves = [[run.curves.get(column, ()) for run in row.runs] for row in study.rows]
        if any(curve for row in curves for curve in row):
            plots.append(_plot(study, name, title, curves))
    return Section("Learning curves", (Plots(tuple(plots), legend=LEGEND),)) if plots else None


def _plot(study: Study, name: str, title: str, curves: Sequence[Sequence[Curve]]) -> Plot:
    rows = Rows.of(study.sweep)
    x, y, colour = quantity("step", "steps", axis={"format": "~s"}), quantity("value"), rows.colour
    seen = hover(row=rows.name, seed="seed", step="step", value="value")
    runs = list(_runs(study, rows, curves))
    every = max(1, -(-len(runs) // MOST))
    means = [record for index, row in enumerate(curves) for record in _mean(rows, index, row)]
    area, thin, thick = ({"type": "area"}, {"type": "line", "strokeWidth": 0.7}, {"type": "line", "strokeWidth": 2})
    layers = [
        layer(area, means, x=x, y=quantity("low"), y2={"field": "high"}, color=colour, opacity=faded(0.15)),
        layer(thin, runs, x=x, y=y, color=colour, opacity=faded(0.5), detail={"field": "seed"}),
        layer(thick, means, x=x, y=y, color=colour, opacity=faded()) | {"params": [CHOSEN]},
        dots(runs[::every], x=x, y=y, color=colour, opacity=faded(0.5), tooltip=seen),
    ]
    return chart(name, f"{title} over steps", layers, heading=title)


def _runs(study: Study, rows: Rows, curves: Sequence[Sequence[Curve]]) -> Iterator[Record]:
    """A point of each curve."""
    count = 0
    for index, (row, own) in enumerate(zip(study.rows, curves, strict=True)):
        for run, curve in zip(row.runs, own, strict=True):
            for step, value in curve:
                if finite(value):
                    place = {"seed": str(run.seed), "href": f"#{anchor(count)}"}
                    yield {"row": rows.labels[index], "step": step, "value": number(value), **place}
            count += 1


def _mean(rows: Rows, index: int, curves: Sequence[Curve]) -> Iterator[Record]:
    """The mean of curves and their range, at the steps that all of them have."""
    values = [{step: value for step, value in curve if finite(value)} for curve in curves if curve]
    for step in sorted(set.intersection(*map(set, values))) if values else ():
        own = [curve[step] for curve in values]
        figures = {"value": sum(own) / len(own), "low": min(own), "high": max(own)}
        yield {"row": rows.labels[index], "step": step, **{name: number(value) for name, value in figures.items()}}
