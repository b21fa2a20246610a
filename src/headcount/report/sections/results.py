"""Results: scores and cost of each row, means over seeds."""

from headcount.evaluation.likelihood import perplexity
from headcount.evaluation.metrics import METRICS, PRIMARY
from headcount.report.blocks import Facts, Section
from headcount.report.endpoint import Endpoint
from headcount.report.measures import brevity_penalty
from headcount.report.study import Study
from headcount.report.table import Table, mean, score
from headcount.statistics.comparison import Comparison

SEVERAL = (
    "Means over seeds ± half a 95 % interval (Student's t, {where}, by a variance that rows may share; not for "
    "comparing rows)."
)
SINGLE = "One seed a row, so the spread between seeds is unknown."

COSTS = {  # header: figure
    "parameters": "parameters",
    "operations/token": "operations_per_token",
    "tokens/s": "train.tokens_per_second",
    "seconds": "train.seconds",
}


def section(study: Study) -> Section:
    signatures = tuple(
        (METRICS[key].label, str(study.sweep.runs[0].figure(f"test.signature.{key}"))) for key in study.sweep.metrics
    )
    return Section("Results", (_note(study.endpoint), _table(study), Facts(signatures, code=True)))


def _note(endpoint: Endpoint) -> str:
    where = "each on a corpus of its own" if endpoint.corpora > 1 else "on these sentences"
    parts = [SEVERAL.format(where=where) if endpoint.comparison.spread else SINGLE]
    parts.append(f"The primary endpoint is {endpoint.name}; all other figures are secondary.")
    if endpoint.counts:
        what = "these translations" if len(endpoint.splits) > 1 else "the test translations"
        parts.append(
            f"Length ratio: tokens of {what} per token of the references; below 1, BLEU's brevity penalty acts."
        )
    return " ".join(parts)


def _table(study: Study) -> Table:
    """A line for each row."""
    rows, endpoint, loss = study.rows, study.endpoint, study.loss
    ratios = [endpoint.length_ratio(index, row) for index, row in enumerate(rows)]
    columns = [
        (study.sweep.design.label or "row", [row.label for row in rows]),
        (endpoint.name, _scores(endpoint.comparison)),
        ("seeds", [" ".join(str(run.seed) for run in row.runs) for row in rows]),
        *((header, [mean(row.figures(path)) for row in rows]) for header, path in COSTS.items()),
        ("valid. loss", _scores(loss, 3) if loss else ["–"] * len(rows)),
        ("valid. perplexity", [f"{perplexity(value):.3f}" for value in loss.means] if loss else ["–"] * len(rows)),
        ("length ratio", ["–" if ratio is None else f"{ratio:.3f}" for ratio in ratios]),
        *([("brevity penalty", penalties)] if (penalties := _penalties(endpoint)) else []),
    ]
    if len(endpoint.splits) > 1:
        columns += [
            (f"{split} BLEU", [mean(row.figures(f"{split}.bleu"), 2) for row in rows]) for split in endpoint.splits
        ]
    for key in study.sweep.metrics:
        if key != PRIMARY:
            columns.append((_header(key), _scores(study.compare([row.figures(f"test.{key}") for row in rows]))))
    headers, cells = zip(*columns, strict=True)
    return Table(headers, tuple(zip(*cells, strict=True)), words=frozenset({0, headers.index("seeds")}))


def _penalties(endpoint: Endpoint) -> list[str]:
    """Of each row, the mean over seeds."""
    rows = [[brevity_penalty(*run.sum(axis=0)[-2:]) for run in row] for row in endpoint.counts]
    return [mean(penalties, 3) for penalties in rows]


def _scores(comparison: Comparison, digits: int = 2) -> list[str]:
    return [score(comparison, row, digits) for row in range(len(comparison.means))]


def _header(key: str) -> str:
    metric = METRICS[key]
    return f"test {metric.label}" + ("" if metric.higher_is_better else " (lower is better)")
