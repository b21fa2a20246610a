"""Measurement of a program: its job, the clock, token ids, and the line with the figure. Needs only numpy."""

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

PAD, BOS, EOS = 0, 2, 3  # as headcount numbers them
SMOOTHING, CLIP, RATE = 0.1, 1.0, 1e-3  # headcount's settings of the loss and the gradient; the rate changes no speed
PACKAGES = ("torch", "transformers", "ctranslate2")

Job = dict[str, Any]


def main(works: dict[str, Callable[[Job], float]]) -> None:
    """Do the work of the job, a JSON file that the command line names, and print the job's `system`, `work`,
    `precision` and `unit` with the figure: one line of JSON, the last of standard output."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(job["threads"])
        torch.manual_seed(1)
    figure = works[job["work"]](job)
    line = {name: job[name] for name in ("system", "work", "precision", "unit")}
    line |= {"figure": figure, "versions": {name: version(name) for name in PACKAGES if name in sys.modules}}
    sys.stdout.write(f"\n{json.dumps(line)}\n")


def translated(job: Job, translate: Callable[[list[str]], list[str]]) -> float:
    """Sentences a second, after a first time whose translations are written to the file `hypotheses`."""
    lines = Path(job["lines"]).read_text(encoding="utf-8").splitlines()
    text = "".join(f"{line}\n" for line in translate(lines))
    Path(job["hypotheses"]).write_text(text, encoding="utf-8")
    count, begin = 0, time.perf_counter()
    while not count or time.perf_counter() - begin < job["seconds"]:
        count += len(translate(lines))
    return count / (time.perf_counter() - begin)


def read_pairs(job: Job) -> tuple[list[list[int]], list[list[int]]]:
    """Source and target of the training pairs as token ids, each with its end of sentence."""
    arrays = np.load(job["pairs"])
    source, target = (
        [[*row.tolist(), EOS] for row in np.split(arrays[f"{side}_ids"], arrays[f"{side}_ends"][:-1])]
        for side in ("source", "target")
    )
    return source, target


def padded(rows: list[list[int]], value: int = PAD) -> np.ndarray:
    """Rows [row, longest] as an array, filled with `value` at the end."""
    out = np.full((len(rows), max(map(len, rows))), value, dtype=np.int64)
    for line, row in zip(out, rows, strict=True):
        line[: len(row)] = row
    return out
