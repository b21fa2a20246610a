"""Results: what each row cost and reached, in means over seeds."""

from headcount.evaluation.likelihood import perplexity
from headcount.evaluation.metrics import METRICS, PRIMARY
from headcount.report.endpoint import Endpoint
from headcount.report.page import Facts, Section
from headcount.report.statistics.comparison import compare
from headcount.report.study import Study
from headcount.report.table import Table, mean, score

SEVERAL = "Means over seeds ± half a 95 % interval (Student's t, on these sentences; not for comparing rows)."
SINGLE = "One seed a row, so the spread between seeds is unknown."


def section(study: Study) -> Section:
    signatures = tuple(
        (METRICS[key].label, str(study.sweep.runs[0].figure(f"test.signature.{key}"))) for key in study.sweep.metrics
    )
    return Section("Results", (_note(study.endpoint), _table(study), Facts(signatures, code=True)))


def _note(endpoint: Endpoint) -> str:
    parts = [SEVERAL if endpoint.comparison.spread else SINGLE]
    parts.append(f"The primary endpoint is {endpoint.name}; all other figures are secondary.")
    if endpoint.counts:
        what = "these translations" if len(endpoint.splits) > 1 else "the test translations"
        parts.append(
            f"Length ratio: tokens of {what} per token of the references; below 1, BLEU's brevity penalty acts."
        )
    return " ".join(parts)


def _table(study: Study) -> Table:
    """A line for each row."""
    endpoint, loss = study.endpoint, study.loss
    splits = endpoint.splits if len(endpoint.splits) > 1 else ()
    secondary = [key for key in study.sweep.metrics if key != PRIMARY]
    comparisons = [compare([row.figures(f"test.{key}") for row in study.rows]) for key in secondary]
    cells = []
    for index, row in enumerate(study.rows):
        ratio = endpoint.length_ratio(index, row)
        cells.append(
            (
                row.label,
                " ".join(str(run.seed) for run in row.runs),
                mean(row.figures("parameters")),
                mean(row.figures("operations_per_token")),
                mean(row.figures("train.tokens_per_second")),
                mean(row.figures("train.seconds")),
                score(loss, index, 3) if loss else "–",
                f"{perplexity(loss.means[index]):.3f}" if loss else "–",
                score(endpoint.comparison, index),
                "–" if ratio is None else f"{ratio:.3f}",
                *(mean(row.figures(f"{split}.bleu"), 2) for split in splits),
                *(score(comparison, index) for comparison in comparisons),
            )
        )
    headers = (
        study.sweep.design.label or "row",
        "seeds",
        "parameters",
        "operations/token",
        "tokens/s",
        "seconds",
        "valid. loss",
        "valid. perplexity",
        endpoint.name,
        "length ratio",
        *(f"{split} BLEU" for split in splits),
        *(_header(key) for key in secondary),
    )
    return Table(headers, tuple(cells), words=frozenset({0, 1}))


def _header(key: str) -> str:
    metric = METRICS[key]
    return f"test {metric.label}" + ("" if metric.higher_is_better else " (lower is better)")
