"""Figures of docs/results/recipes.md.

    python scripts/figures/recipe_figures.py OUT.csv RECIPE=RUN[,RUN...] ...

writes OUT.csv and prints the table. A RECIPE is a row, whose RUNs differ in their seeds. Each must have been evaluated
with `split=[valid,test] moses=true`. A figure is the mean over seeds, its half width that of the 95 % interval of
Student's t; empty for one seed.
"""

import csv
import json
import math
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from scipy import stats

from headcount.settings import at

FIGURES = {  # column: path in metrics.json, divisor, digits
    "minutes": ("train.seconds", 60, 0),
    "valid_bleu": ("valid.bleu", 1, 2),
    "valid_length_ratio": ("valid.length_ratio", 1, 3),
    "test_bleu": ("test.bleu", 1, 2),
    "test_bleu_moses": ("test.moses.bleu.value", 1, 2),
    "test_chrf": ("test.chrf", 1, 2),
    "test_length_ratio": ("test.length_ratio", 1, 3),
}


def main(out: str, *recipes: str) -> None:
    rows = [row(*recipe.split("=", 1)) for recipe in recipes]
    with open(out, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    shown = ["recipe", "seeds", "updates", *FIGURES]
    print(f"| {' | '.join(shown)} |\n|{'---|' * len(shown)}")  # noqa: T201
    for figures in rows:
        cells = [
            f"{figures[name]}" + (f" ± {figures[f'{name}_half_width']}" if figures.get(f"{name}_half_width") else "")
            for name in shown
        ]
        print(f"| {' | '.join(cells)} |")  # noqa: T201


def row(recipe: str, runs: str) -> dict[str, Any]:
    """The figures of a recipe, from the metrics.json of its runs."""
    found = [json.loads(Path(run, "metrics.json").read_text("utf-8")) for run in runs.split(",")]
    seeds = [figures["seed"] for figures in found]
    steps = {figures["train"]["steps"] for figures in found}
    if len(set(seeds)) < len(seeds) or len(steps) > 1:
        raise SystemExit(f"{recipe}: seeds {seeds}, updates {steps}: runs must differ in their seeds alone")
    cells: dict[str, Any] = {"recipe": recipe, "seeds": len(found), "updates": steps.pop()}
    for name, (path, divisor, digits) in FIGURES.items():
        values = [at(figures, path) / divisor for figures in found]
        cells[name] = f"{mean(values):.{digits}f}"
        cells[f"{name}_half_width"] = f"{half_width(values):.{digits}f}" if len(values) > 1 else ""
    return cells


def half_width(values: list[float]) -> float:
    """Of the 95 % interval of the mean."""
    return float(stats.t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))


if __name__ == "__main__":
    main(*sys.argv[1:])
