"""Figures as tables for a person to read."""

from collections.abc import Sequence
from typing import Any

from tabulate import tabulate

from headcount.evaluation.scoring import compare

Figures = dict[str, Any]  # what metrics.json says of a split

METRICS = {"bleu": "BLEU", "chrf": "chrF"}
CONVENTIONS = {"lowercase": "lowercased", "moses": "lowercased, Moses tokens"}  # other ways to count than 13a, cased


def score_table(figures: dict[str, Figures]) -> str:
    """BLEU and chrF of every run, with the signatures below."""
    table = []
    for name, figure in figures.items():
        row = {"run": name, "BLEU": figure["bleu"], "chrF": figure["chrf"]}
        if "loss" in figure:
            row["loss"] = figure["loss"]
        for convention, label in CONVENTIONS.items():
            for metric, found in figure.get(convention, {}).items():
                row[f"{METRICS[metric]} {label}"] = found["value"]
        table.append(row)
    figure = next(iter(figures.values()))
    lines = [tabulate(table, headers="keys", floatfmt=".2f"), "", *_signature_lines(figure["signature"])]
    for convention, label in CONVENTIONS.items():
        signatures = {name: value["signature"] for name, value in figure.get(convention, {}).items()}
        lines += _signature_lines(signatures, f" {label}")
    return "\n".join(lines)


def _signature_lines(signatures: dict[str, str], label: str = "") -> list[str]:
    return [f"{METRICS[name]}{label}: {signature}" for name, signature in signatures.items()]


def comparison_table(hypotheses: dict[str, list[str]], references: Sequence[str], lowercase: bool) -> str:
    """Paired bootstrap of every run against the first."""
    comparisons, signatures = compare(hypotheses, references, lowercase)
    table = [
        {"run": name}
        | {
            METRICS[metric]: f"{figure.score:.2f} ± {figure.interval:.2f}"
            + ("" if figure.p_value is None else f" (p = {figure.p_value:.3f})")
            for metric, figure in row.items()
        }
        for name, row in comparisons.items()
    ]
    return "\n".join(
        [
            "paired bootstrap against the first run, ± half a 95 % interval",
            "",
            tabulate(table, headers="keys"),
            "",
            *_signature_lines(signatures),
        ]
    )


def contrastive_table(figures: dict[str, Figures]) -> str:
    """Contrastive accuracy in percent by phenomenon and grade, a column a run."""
    table = []
    for phenomenon, grades in next(f["contrastive"] for f in figures.values() if "contrastive" in f).items():
        for grade, wins in grades.items():
            row = {"phenomenon": phenomenon, "grade": grade, "pairs": wins["pairs"]}
            for name, figure in figures.items():
                row[name if len(figures) > 1 else "accuracy %"] = figure["contrastive"][phenomenon][grade]["accuracy"]
            table.append(row)
    return "contrastive accuracy: the right translation more probable than the wrong one (chance: 50 %)\n\n" + tabulate(
        table, headers="keys", floatfmt=".1f", intfmt="d"
    )
