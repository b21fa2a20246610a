"""Figures of docs/explore.md: python tests/explore_figures.py RUN ... prints a row of a table for each run and form.

Equality with Python on the run's test set: pieces of all sources and targets, greedy translations of the first 1,000
sources. Milliseconds are processor time of greedy search in node, the median and 95th percentile over 200 sentences.
"""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from headcount.decoding.beam import greedy
from headcount.explore.page import content, example_sentences, rendered
from headcount.run.opened import make_translator, open_run


def main(directories: list[str]) -> None:
    torch.set_num_threads(1)
    for directory in directories:
        run = open_run(directory, device="cpu")
        test = run.data().data["test"]
        sources, both = list(test["source"])[:1000], [*test["source"], *test["target"]]
        pieces = run.tokenizer.source.encode(both)
        translator = make_translator(run.model, run.tokenizer, greedy(run.translator.search), False)
        expected = translator.translate(sources)
        for form in ("float32", "int8"):
            page = rendered(content({directory: run}, form, example_sentences(run, 4)))
            timed = [{"task": "time", "texts": sources[:200]}] * 2  # the first while the engine compiles
            tasks = [{"task": "encode", "texts": both}, {"task": "greedy", "texts": sources}, *timed]
            found, greedily, _, times = answers(page, tasks)
            equal = sum(a == b for a, b in zip(found, pieces, strict=True))
            same = sum(a["text"] == b for a, b in zip(greedily, expected, strict=True))
            low, high = np.percentile(times, [50, 95])
            cells = (
                f"{sum(p.numel() for p in run.model.parameters()):,}",
                form,
                f"{len(page.encode()) / 1e6:.2f} MB",
                f"{equal:,} of {len(both):,}",
                f"{same:,} of {len(sources):,}",
                f"{low:.0f}",
                f"{high:.0f}",
            )
            print("| " + " | ".join((Path(directory).name[-40:], *cells)) + " |", flush=True)  # noqa: T201


def answers(page: str, tasks: list[dict]) -> list:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "explore.html"
        path.write_text(page, encoding="utf-8")
        command = ["node", str(Path(__file__).parent / "explore.js"), str(path)]
        return json.loads(
            subprocess.run(command, input=json.dumps(tasks), capture_output=True, text=True, check=True).stdout
        )


if __name__ == "__main__":
    main(sys.argv[1:])
