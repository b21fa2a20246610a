"""Tables of scores for the terminal."""

from collections.abc import Sequence
from typing import Any

from tabulate import tabulate

from headcount.evaluation.metrics import METRICS, PRIMARY
from headcount.evaluation.significance import compare

Figures = dict[str, Any]  # of a split, as in metrics.json

# Ways to count other than the run's own: key and label.
CONVENTIONS = {"lowercase": "lowercased", "moses": "lowercased, Moses tokens"}


def score_table(figures: dict[str, Figures]) -> str:
    """Every metric of every run, with the signatures below."""
    table = []
    for name, figure in figures.items():
        row = {"run": name}
        for key, metric in METRICS.items():
            row[metric.label] = figure[key]
            if key == PRIMARY:
                row["length ratio"] = figure["length_ratio"]
        if "loss" in figure:
            row["loss"] = figure["loss"]
        for convention, label in CONVENTIONS.items():
            for metric, score in figure.get(convention, {}).items():
                row[f"{METRICS[metric].label} {label}"] = score["value"]
        table.append(row)
    figure = next(iter(figures.values()))
    digits = tuple(".3f" if column == "length ratio" else ".2f" for column in table[0])
    lines = [tabulate(table, headers="keys", floatfmt=digits), "", *_signature_lines(figure["signature"])]
    for convention, label in CONVENTIONS.items():
        signatures = {name: value["signature"] for name, value in figure.get(convention, {}).items()}
        lines += _signature_lines(signatures, f" {label}")
    return "\n".join(lines)


def _signature_lines(signatures: dict[str, str], label: str = "") -> list[str]:
    return [f"{METRICS[name].label}{label}: {signature}" for name, signature in signatures.items()]


def comparison_table(
    hypotheses: dict[str, list[str]], references: Sequence[str], tokenizer: str, lowercase: bool
) -> str:
    """Paired bootstrap of every run against the first."""
    comparisons, signatures = compare(hypotheses, references, tokenizer, lowercase)
    table = [
        {"run": name}
        | {
            METRICS[metric].label: f"{figure.score:.2f} ± {figure.interval:.2f}"
            + ("" if figure.p_value is None else f" (p = {figure.p_value:.3f})")
            for metric, figure in row.items()
        }
        for name, row in comparisons.items()
    ]
    heading = "paired bootstrap against the first run, ± half a 95 % interval"
    return "\n".join([heading, "", tabulate(table, headers="keys"), "", *_signature_lines(signatures)])


def contrastive_table(figures: dict[str, Figures]) -> str:
    """Contrastive accuracy in percent by phenomenon and grade, a column for each run whose corpus has contrasts."""
    tested = {name: figure["contrastive"] for name, figure in figures.items() if "contrastive" in figure}
    table = []
    for phenomenon, grades in next(iter(tested.values())).items():
        for grade, wins in grades.items():
            row = {"phenomenon": phenomenon, "grade": grade, "pairs": wins["pairs"]}
            for name, accuracies in tested.items():
                row[name if len(figures) > 1 else "accuracy %"] = accuracies[phenomenon][grade]["accuracy"]
            table.append(row)
    return "contrastive accuracy: the right translation more probable than the wrong one (chance: 50 %)\n\n" + tabulate(
        table, headers="keys", floatfmt=".1f", intfmt="d"
    )
