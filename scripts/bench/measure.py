"""Measurement of a program: its job, the clock, token ids, and the line with the figure. Needs only numpy."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

PAD, BOS = 0, 2  # as headcount numbers them
SMOOTHING, CLIP, RATE = 0.1, 1.0, 1e-3  # headcount's settings of the loss and the gradient; the rate changes no speed

Job = dict[str, Any]


def main(works: dict[str, Callable[[Job], float]]) -> None:
    """Do the work of the job, which the command line describes in JSON, and print the figure as a line of JSON. A
    training gets what bench_headcount.py wrote: the size of the model, and pairs as token ids with their end."""
    job = json.loads(sys.argv[1])
    if job["work"] == "train":
        job |= json.loads(Path(job["inputs"]).read_text(encoding="utf-8"))
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(job["threads"])
        torch.manual_seed(1)
    sys.stdout.write(f"\n{json.dumps({'figure': works[job['work']](job)})}\n")


def translated(job: Job, translate: Callable[[list[str]], list[str]]) -> float:
    """Sentences a second, after a first time whose translations are written to the file `hypotheses`."""
    lines = Path(job["lines"]).read_text(encoding="utf-8").splitlines()
    Path(job["hypotheses"]).write_text("".join(f"{line}\n" for line in translate(lines)), encoding="utf-8")
    count, begin = 0, time.perf_counter()
    while not count or time.perf_counter() - begin < job["seconds"]:
        count += len(translate(lines))
    return count / (time.perf_counter() - begin)


def padded(rows: Sequence[list[int]], value: int = PAD) -> np.ndarray:
    """Rows [row, longest] as an array, filled with `value` at the end."""
    out = np.full((len(rows), max(map(len, rows))), value, dtype=np.int64)
    for line, row in zip(out, rows, strict=True):
        line[: len(row)] = row
    return out
