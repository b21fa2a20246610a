"""Learning curves: validation loss and BLEU over steps."""

from collections.abc import Iterator, Sequence

from headcount.report.blocks import Plots, Section
from headcount.report.charts import CHOSEN, Record, Rows, anchor, chart, dots, faded, hover, layer, number, quantity
from headcount.report.plot import Plot
from headcount.report.runs import finite
from headcount.report.study import Study

CURVES = (  # name of the plot, column of the log, title, figure of the scored weights
    ("curve_loss", "valid/loss", "validation loss", "valid.loss"),
    ("curve_bleu", "valid/bleu", "validation BLEU, greedy", ""),  # that of the scored weights is by beam search
)
LEGEND = "A thin line is a run; a thick one the mean of its row, in the band from its lowest to its highest run."
SCORED = "A square is the loss of the weights that were scored: averaged, or the last."
MOST = 600  # points that show their figures

Curve = Sequence[tuple[int, float]]


def section(study: Study) -> Section | None:
    plots = []
    for name, column, title, scored in CURVES:
        curves = [[run.curves.get(column, ()) for run in row.runs] for row in study.rows]
        if any(curve for row in curves for curve in row):
            plots.append(_plot(study, name, title, curves, list(_scored(study, scored))))
    if not plots:
        return None
    legend = f"{LEGEND} {SCORED}" if any(_scored(study, CURVES[0][3])) else LEGEND
    return Section("Learning curves", (Plots(tuple(plots), legend=legend),))


def _plot(study: Study, name: str, title: str, curves: Sequence[Sequence[Curve]], scored: Sequence[Record]) -> Plot:
    rows = Rows.of(study.sweep)
    x, y, colour = quantity("step", "steps", axis={"format": "~s"}), quantity("value"), rows.colour
    seen = hover(row=rows.name, seed="seed", step="step", value="value")
    runs = list(_runs(study, rows, curves))
    every = max(1, -(-len(runs) // MOST))
    means = [record for index, row in enumerate(curves) for record in _mean(rows, index, row)]
    area, thin, thick = ({"type": "area"}, {"type": "line", "strokeWidth": 0.7}, {"type": "line", "strokeWidth": 2})
    square = {"type": "point", "shape": "square", "size": 60, "filled": True, "cursor": "pointer"}
    layers = [
        layer(area, means, x=x, y=quantity("low"), y2={"field": "high"}, color=colour, opacity=faded(0.15)),
        layer(thin, runs, x=x, y=y, color=colour, opacity=faded(0.5), detail={"field": "seed"}),
        layer(thick, means, x=x, y=y, color=colour, opacity=faded()) | {"params": [CHOSEN]},
        dots(runs[::every], x=x, y=y, color=colour, opacity=faded(0.5), tooltip=seen),
    ]
    if scored:
        kept = [*seen, *hover(weights="scored weights")]
        layers.append(
            layer(square, scored, x=x, y=y, color=colour, opacity=faded(0.8), tooltip=kept, href={"field": "href"})
        )
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


def _scored(study: Study, path: str) -> Iterator[Record]:
    """A point for the scored weights of each run, where the last step was. path: of their figure; none if empty."""
    rows = Rows.of(study.sweep)
    count = 0
    for index, row in enumerate(study.rows if path else ()):
        for run in row.runs:
            value, step = run.figure(path), run.figure("train.steps")
            if finite(value) and finite(step):
                weights = str(run.figure("weights.scored") or "unknown")
                place = {"seed": str(run.seed), "href": f"#{anchor(count)}", "weights": weights}
                yield {"row": rows.labels[index], "step": step, "value": number(value), **place}
            count += 1


def _mean(rows: Rows, index: int, curves: Sequence[Curve]) -> Iterator[Record]:
    """The mean of curves and their range, at the steps that all of them have."""
    values = [{step: value for step, value in curve if finite(value)} for curve in curves if curve]
    for step in sorted(set.intersection(*map(set, values))) if values else ():
        own = [curve[step] for curve in values]
        figures = {"value": sum(own) / len(own), "low": min(own), "high": max(own)}
        yield {"row": rows.labels[index], "step": step, **{name: number(value) for name, value in figures.items()}}
