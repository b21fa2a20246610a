"""Contrasts of rows of several kept studies that have the same parameters: width of attention against number of heads.

    python scripts/figures/equal_parameters_figures.py [DIR]

DIR: the folder of Multi30k with valid.de, test.en, ... (plain or .gz); without it, the built-in corpus alone.
"""

import sys
from dataclasses import replace
from pathlib import Path

from tabulate import tabulate

from headcount.report.endpoint import bleu_endpoint
from headcount.report.read import read_sweep
from headcount.report.runs import Row, Sweep
from headcount.report.table import pair_cells
from headcount.report.verdicts import Names

RESULTS = Path(__file__).parents[2] / "docs" / "results"
HEADERS = ("pair", "verdict", "difference", "95 % interval", "p", "p (equal within 0.5)")
STUDIES = {  # label: the study and the row there
    "built-in corpus": {
        "1 of 16": ("heads_fixed_parameters_grammar", "1"),
        "4 of 16": ("heads_fixed_parameters_grammar", "4"),
        "8 of 16": ("heads_fixed_parameters_grammar", "8"),
        "1 of 128": ("heads_by_width_grammar", "d_model=128, num_heads=1"),
    },
    "Multi30k, 375 updates": {
        "1 of 16": ("heads_fixed_parameters_multi30k", "1"),
        "4 of 16": ("heads_fixed_parameters_multi30k", "4"),
        "8 of 16": ("heads_fixed_parameters_multi30k", "8"),
        "1 of 128": ("heads_multi30k_quick/after_375", "1"),
    },
}


def gathered(rows: dict[str, tuple[str, str]], text: str | None) -> Sweep:
    """A sweep of rows of several studies, with the seeds that all of them have. text: directory of their corpus."""
    sweeps = {study: read_sweep(RESULTS / study / "runs.parquet", text=text) for study, _ in rows.values()}
    known = {
        label: next(row for row in sweeps[study].rows if row.label == name) for label, (study, name) in rows.items()
    }
    seeds = set.intersection(*({run.seed for run in row.runs} for row in known.values()))
    made = []
    for label, row in known.items():
        made.append(Row(label, None, tuple(run for run in row.runs if run.seed in seeds)))
    first = next(iter(sweeps.values()))
    return replace(first, rows=tuple(made), design=replace(first.design, label=None))


if __name__ == "__main__":
    for corpus, rows in STUDIES.items():
        if "Multi30k" in corpus and len(sys.argv) < 2:
            continue
        sweep = gathered(rows, sys.argv[1] if "Multi30k" in corpus else None)
        endpoint = bleu_endpoint(sweep, 1000)
        cells = pair_cells(endpoint.comparison, Names(None, sweep.rows), 0.5, "BLEU")
        means = ", ".join(
            f"{row.label} {mean:.2f}" for row, mean in zip(sweep.rows, endpoint.comparison.means, strict=True)
        )
        sys.stdout.write(f"{corpus}: {means}\n\n{tabulate(cells, HEADERS, tablefmt='pipe', disable_numparse=True)}\n\n")
