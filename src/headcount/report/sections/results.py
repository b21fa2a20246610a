"""Results: scores and cost of each row, its quality by every measure, learning curves, every run, settings."""

import pandas as pd
import yaml

from headcount.evaluation.metrics import METRICS
from headcount.report.flags import answers_of
from headcount.report.measures import measures, row_lines
from headcount.report.page import Section, View, code, escaped, markdown_table
from headcount.report.study import Study
from headcount.report.verdicts import mean, scores
from headcount.report.views import curve, forest
from headcount.settings import typed

COSTS = {  # header: figure
    "parameters": "parameters",
    "operations/token": "operations_per_token",
    "seconds": "train.seconds",
}
FACTS = {"precision": "train.precision", "hardware": "hardware", "versions": "versions", "search": "test.search"}
CURVES = {"validation loss": "valid/loss", "validation BLEU, greedy": "valid/bleu"}  # columns of the log
CURVES_NOTE = (
    "The mean of each condition, in the band from its lowest to its highest run. A click in the legend picks some."
)
TUNING_NOTE = (
    "Mean validation loss, in nats, over the seeds that all values of the condition have. The runs with the lowest "
    "loss are the condition; the others are left out. The intervals do not allow for this choice, which the sentences "
    "of validation made. Beyond the smallest or the largest value tried, a better one may lie."
)


def results(study: Study) -> Section:
    endpoint, rows = study.endpoint, study.rows
    where = "each on a corpus of its own" if endpoint.corpora > 1 else "on these sentences"
    note = (
        f"Means over seeds ± half a 95 % interval (Student's t, {where}; not for comparing conditions)."
        if endpoint.comparison.spread
        else "One seed per condition, so the spread between seeds is unknown."
    )
    note += f" The primary endpoint is {endpoint.name}; all other figures are secondary, see results.csv."
    columns = {
        study.label: study.labels,
        endpoint.name: scores(endpoint.comparison),
        "seeds": [" ".join(str(run.seed) for run in row.runs) for row in rows],
        **{header: [mean(row.figures(path)) for row in rows] for header, path in COSTS.items()},
    }
    table = markdown_table([*columns], [*zip(*columns.values(), strict=True)], words=(0, 2))
    signature = study.sweep.runs[0].figure("test.signature")
    lines = [f"- {METRICS[key].label}: {code(str(signature.get(key)))}" for key in study.sweep.metrics]
    return Section("Results", (note, table, "\n".join(lines)))


def tuning(study: Study) -> Section | None:
    """The choice of a setting for each row: the values tried, their losses, and the one chosen."""
    tried = study.sweep.tried
    if tried is None:
        return None
    labels = {run.name: row.label for row in study.rows for run in row.runs}
    lines = tried.itertuples(index=False, name=None)
    cells = [(labels[run], value, f"{loss:.4f}", choice, seeds) for value, loss, choice, seeds, run in lines]
    headers = (study.label, tried.columns[0], "validation loss", "chosen", "seeds of the choice")
    return Section(f"Choice of {tried.columns[0]}", (TUNING_NOTE, markdown_table(headers, cells, words=(0, 3))))


def quality(study: Study) -> Section:
    """BLEU, validation loss and other figures of each row."""
    known, ends = measures(study), {"low": "low", "high": "high", "choose": "measure"}
    chart = forest(row_lines(study), label=study.label, value="mean", at=None, hover=("runs",), **ends)
    digits = [4 if "loss" in measure.name or measure.comparison.means[0] < 2 else 2 for measure in known]
    cells = [(each.name, *scores(each.comparison, places)) for each, places in zip(known, digits, strict=True)]
    interval = ", with the 95 % interval over seeds" if study.endpoint.comparison.spread else ""
    note = f"Means of conditions{interval}. BLEU of N tokens: of the sentences whose references have that many."
    view = View("quality", f"{study.endpoint.name} by {study.label}", chart)
    return Section("Quality", (note, view, markdown_table(("", *study.labels), cells)))


def curves(study: Study) -> Section | None:
    """Validation loss and BLEU over steps."""
    logs = [run.curves.assign(condition=row.label) for row in study.rows for run in row.runs if "step" in run.curves]
    if not logs:
        return None
    log = pd.concat(logs).reindex(columns=["condition", "step", *CURVES.values()])
    log = log.set_axis(["condition", "step", *CURVES], axis=1).assign(step=log["step"] + 1)
    points = log.melt(["condition", "step"], var_name="measure").dropna()
    table = points.groupby(["measure", "condition", "step"], sort=False)["value"].agg(["mean", "min", "max", "count"])
    table = table.reset_index().sort_values("step", kind="stable")
    table = table[table["count"] == table.groupby(["measure", "condition"])["count"].transform("max")]
    chart = curve(table, x="step", y="mean", colour="condition", low="min", high="max", choose="measure")
    return Section("Learning curves", (CURVES_NOTE, View("curves", "validation loss and BLEU over steps", chart)))


def runs(study: Study) -> Section:
    """Every run, and its score."""
    cells = [
        (run.name, row.label, str(run.seed), f"{score:.5g}")
        for row, own in zip(study.rows, study.endpoint.scores, strict=True)
        for run, score in zip(row.runs, own, strict=True)
    ]
    headers = ("run", study.label, "seed", study.endpoint.name)
    return Section("Every run", (markdown_table(headers, cells, words=(0, 1)),))


def settings(study: Study) -> Section:
    """Corpus, machine, versions, and the settings of the runs."""
    sweep, first = study.sweep, study.sweep.runs[0]
    facts = {
        "corpus": first.corpus + (", another one for each seed" if sweep.corpora else ""),
        "seeds": ", ".join(str(seed) for seed in sorted({run.seed for run in sweep.runs})),
        **{name: "; ".join(answers_of(sweep.runs, path)) for name, path in FACTS.items()},
    }
    blocks: list[str | Section] = ["\n".join(f"- {name}: {escaped(fact)}" for name, fact in facts.items())]
    if sweep.differing:
        cells = [
            (name, *(" or ".join({typed(run.settings.get(name)): 0 for run in row.runs}) for row in sweep.rows))
            for name in sweep.differing
        ]
        blocks.append(markdown_table(("setting", *study.labels), cells))
    shared = {name: value for name, value in first.settings.items() if name not in sweep.differing}
    text = code(yaml.safe_dump(shared, sort_keys=False, allow_unicode=True), "yaml")
    blocks.append(Section("Settings that all runs share", (text,), folded=True))
    return Section("How it was measured", tuple(blocks))
