"""Quality against cost: BLEU over training time, and over parameters and operations if these differ between rows."""

from collections.abc import Sequence

from headcount.report.blocks import Plots, Section
from headcount.report.charts import CHOSEN, MEAN, Rows, chart, dots, faded, hover, layer, number, quantity, whiskers
from headcount.report.plot import Plot
from headcount.report.study import Study

COSTS = (  # name of the plot, figure, label, and the relative difference from which it is drawn
    ("seconds", "train.seconds", "seconds of training", 0.0),
    ("parameters", "parameters", "parameters", 0.01),
    ("operations", "operations_per_token", "multiply-adds per token", 0.01),
)


def section(study: Study) -> Section | None:
    plots = []
    for name, path, label, least in COSTS:
        costs = [row.figures(path) for row in study.rows]
        if any(len(values) < len(row.runs) for values, row in zip(costs, study.rows, strict=True)):
            continue
        means = [sum(values) / len(values) for values in costs]
        if max(means) > min(means) * (1 + least):
            plots.append(_plot(study, name, label, costs, means))
    return Section("Quality against cost", (Plots(tuple(plots)),)) if plots else None


def _plot(study: Study, name: str, label: str, costs: Sequence[Sequence[float]], means: Sequence[float]) -> Plot:
    endpoint, rows = study.endpoint, Rows.of(study.sweep)
    scores = rows.runs(study.sweep, endpoint.scores)
    runs = [
        run | {"cost": cost["cost"]} for run, cost in zip(scores, rows.runs(study.sweep, costs, "cost"), strict=True)
    ]
    centres = [mean | {"cost": number(cost)} for mean, cost in zip(rows.means(endpoint.comparison), means, strict=True)]
    x, y, colour = quantity("cost", label, axis={"format": "~s"}), quantity("value"), rows.colour
    seen = hover(row=rows.name, seed="seed", value=endpoint.name, cost=label)
    layers = [
        dots(runs, x=x, y=y, color=colour, opacity=faded(0.5), tooltip=seen),
        whiskers(centres, x=x, y=quantity("low"), color=colour, opacity=faded()),
        layer(
            MEAN, centres, x=x, y=y, color=colour, shape=rows.shape, opacity=faded(),
            tooltip=hover(row=rows.name, value="mean", low="95 % interval from", high="to", cost=label),
        ) | {"params": [CHOSEN]},
    ]  # fmt: skip
    return chart(f"bleu_by_{name}", f"{endpoint.name} by {label}", layers, heading=endpoint.name)
