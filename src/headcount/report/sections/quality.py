"""Quality: BLEU, validation loss and other figures of every run, and the mean of each row."""

from collections.abc import Sequence

from headcount.report.blocks import Plots, Section
from headcount.report.charts import (
    BESIDE,
    GREY,
    MEAN,
    Rows,
    chart,
    chosen,
    dots,
    hover,
    layer,
    only,
    quantity,
    whiskers,
)
from headcount.report.measures import Measure, loss_name, measures
from headcount.report.plot import COLOURS, Plot
from headcount.report.study import Study


def section(study: Study) -> Section:
    known = measures(study)
    plots = [_plot(study, "bleu", known, study.endpoint.name)]
    loss = loss_name("valid")
    if any(measure.name == loss for measure in known):
        plots.append(_plot(study, "loss", known, loss))
    interval = ", with the 95 % interval over seeds" if study.endpoint.comparison.spread else ""
    legend = f"A dot is a run; a diamond the mean of its row{interval}."
    return Section("Quality", (Plots(tuple(plots), legend=legend),))


def _plot(study: Study, name: str, known: Sequence[Measure], first: str) -> Plot:
    """One measure of all runs, by row."""
    rows = Rows.of(study.sweep)
    runs = [{**run, "measure": measure.name} for measure in known for run in rows.runs(study.sweep, measure.scores)]
    means = [{**mean, "measure": measure.name} for measure in known for mean in rows.means(measure.comparison)]
    x, y = rows.x, quantity("value")
    colour = {"value": COLOURS[0]}
    seen = hover(row=rows.name, value="mean", low="95 % interval from", high="to")
    layers = [
        dots(runs, BESIDE, x=x, y=y, color={"value": GREY}, tooltip=hover(row=rows.name, seed="seed", value="value")),
        whiskers(means, x=x, y=quantity("low"), color=colour),
        layer(MEAN | {"shape": "diamond"}, means, x=x, y=y, color=colour, tooltip=seen),
    ]
    if rows.logarithmic:
        layers.insert(1, layer({"type": "line", "strokeWidth": 1.2}, means, x=x, y=y, color=colour))
    return chart(name, f"{first} by {rows.name}", map(only, layers), **chosen([each.name for each in known], first))
