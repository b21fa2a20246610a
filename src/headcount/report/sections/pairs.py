"""Every pair of rows by the primary endpoint, BLEU."""

from headcount.report.blocks import Plots, Section
from headcount.report.charts import GREY, INK, MEAN, WIDTH, chart, chosen, hover, layer, number, only, quantity
from headcount.report.endpoint import Endpoint
from headcount.report.measures import measures
from headcount.report.plot import COLOURS, Plot
from headcount.report.study import Study
from headcount.report.table import Table, pair, pair_cells
from headcount.report.verdicts import deviations, family, needed, shared

LABEL = 440  # pixels of the names of two rows
LEGEND = (
    "A point is the difference of two rows with the interval of the table below; a tick is that of two runs of "
    "theirs{same}. The band holds differences that count as equal."
)


def section(study: Study) -> Section | None:
    bleu, within = study.endpoint.comparison, study.margins.bleu
    if not bleu.differences:
        return None
    headers = ("pair", "verdict", "difference", "95 % interval", "p", f"p (equal within {within:g})")
    note = f"{_note(study.endpoint)} {needed(bleu, study.effect, 'BLEU')}".strip()
    table = Table(headers, pair_cells(bleu, study.names, within, "BLEU"), note, frozenset({0, 1}))
    plot = Plots((_plot(study),), legend=LEGEND.format(same=" on the same corpus" if study.sweep.blocks else ""))
    return Section(f"Every pair of rows: {study.endpoint.name}", (plot, table))


def _plot(study: Study) -> Plot:
    """A forest plot: the difference of each pair with its simultaneous interval, and those of all pairs of runs."""
    known = [measure for measure in measures(study) if measure.higher is not None and measure.comparison.differences]
    pairs, runs, bands = [], [], []
    for measure in known:
        for each in measure.comparison.differences:
            name, (low, high) = pair(each, study.names), each.interval
            verdict = each.verdict(measure.within) if measure.within else "differ" if each.differs else "undecided"
            which = {"measure": measure.name, "pair": name}
            ends = {"low": number(low), "high": number(high), "verdict": verdict}
            pairs.append({**which, "value": number(each.value), **ends})
            runs += [
                {**which, "value": number(one - other), "seed": f"{run.seed} − {against.seed}"}
                for run, one in zip(study.rows[each.first].runs, measure.scores[each.first], strict=True)
                for against, other in zip(study.rows[each.second].runs, measure.scores[each.second], strict=True)
                if run.seed == against.seed or not study.sweep.blocks
            ]
        # No width where there is no margin: Vega warns of a layer without data.
        within = measure.within or 0
        bands.append({"measure": measure.name, "low": -within, "high": within})
    names = list(dict.fromkeys(each["pair"] for each in pairs))
    y = {"field": "pair", "type": "nominal", "sort": names, "title": None, "axis": {"labelLimit": LABEL}}
    x, start, end = quantity("value"), quantity("low"), {"field": "high"}
    verdicts = {"domain": ["differ", "equal", "undecided"], "range": [COLOURS[3], COLOURS[2], GREY]}
    colour = {"field": "verdict", "type": "nominal", "scale": verdicts, "title": None}
    seen = hover(pair="pair", verdict="verdict", value="difference", low="interval from", high="to")
    tick = {"type": "tick", "color": GREY, "opacity": 0.5, "thickness": 1, "height": 9}
    layers = [
        only(layer({"type": "rect", "opacity": 0.12, "color": COLOURS[2]}, bands, x=start, x2=end)),
        layer({"type": "rule", "color": INK, "strokeDash": [2, 3]}, [{"value": 0}], x=x),
        only(layer(tick, runs, x=x, y=y, tooltip=hover(pair="pair", seed="seeds", value="difference"))),
        only(layer({"type": "rule", "strokeWidth": 2}, pairs, x=start, x2=end, y=y, color=colour)),
        only(layer(MEAN, pairs, x=x, y=y, color=colour, tooltip=seen)),
    ]
    first = study.endpoint.name
    more = chosen([each.name for each in known], first) | {"height": {"step": 18}, "width": WIDTH - 60}
    return chart("differences", f"differences of every pair of rows by {first}", layers, **more)


def _note(endpoint: Endpoint) -> str:
    """The sources of error that the intervals include."""
    bleu, sources = endpoint.comparison, []
    if bleu.spread and endpoint.corpora > 1:
        own = f" and {endpoint.sentences:,} held-out sentences" if endpoint.sentences else ""
        effect = "without the effect of the corpus on all rows"
        if bleu.whole is bleu.spread:
            effect = "with the effect of the corpus on all rows, since a row lacks a corpus that others have"
        spread = f"deviation {deviations(bleu, 2)} BLEU from run to run, {effect}; {shared(bleu)}"
        sources.append(f"seeds, each with a corpus{own} of its own ({spread})")
    elif bleu.spread:
        sources.append(f"seeds (deviation {deviations(bleu, 2)} BLEU from run to run, {shared(bleu)})")
    if bleu.interaction:
        sources.append(f"the draw of {endpoint.sentences:,} sentences (bootstrap)")
    return f"Intervals and p-values hold for {family(bleu)}, over {' and '.join(sources)}."
