"""Figures of docs/export.md: python tests/export_figures.py RUN [SENTENCES] [PYTHON ...] prints a table, and RUN speed
another one.

Equality with headcount on the first sources of the run's test set, 1,000 or as many as given: the translations of
greedy search, and those of beam search with their scores. CTranslate2 reads the exported folder, pieces go in and out.
transformers runs in each PYTHON, an interpreter that has it; `pipeline("translation")` where that version has one, else
`generate`.
"""

import json
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from operator import eq
from pathlib import Path
from tempfile import TemporaryDirectory

import ctranslate2
import torch

from headcount.decoding.beam import greedy
from headcount.export.engine import with_ctranslate2
from headcount.export.folder import write_folder
from headcount.run.opened import Run, make_translator, open_run

SENTENCES, BATCH = 1000, 64
TRANSFORMERS = """
import json, sys
import torch, transformers
torch.set_num_threads(1)
folder, beams = sys.argv[1], int(sys.argv[2])
texts = json.load(sys.stdin)
if transformers.__version__ < "5":
    name, translate = "pipeline", transformers.pipeline("translation", model=folder, batch_size=64)
    found = [each["translation_text"] for each in translate(texts, num_beams=beams)]
else:
    name = "generate"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    found = []
    for start in range(0, len(texts), 64):
        batch = tokenizer(texts[start : start + 64], return_tensors="pt", padding=True)
        found += tokenizer.batch_decode(model.generate(**batch, num_beams=beams), skip_special_tokens=True)
json.dump([f"transformers {transformers.__version__}, {name}", found], sys.stdout)
"""


def main(directory: str, *given: str) -> None:
    sentences, pythons = (int(given[0]), given[1:]) if given[:1] and given[0].isdigit() else (SENTENCES, given)
    torch.set_num_threads(1)
    run = open_run(directory, device="cpu")
    sources = list(run.data().data["test"]["source"])[:sentences]
    once = replace(run, translator=make_translator(run.model, run.tokenizer, greedy(run.translator.search), False))
    expected, best = once.translator.translate(sources), run.translator.nbest(sources, 1)
    row("engine", "weights", "greedy: equal", f"{run.translator.search}: equal", "largest difference of scores")
    row(*["---"] * 5)
    with TemporaryDirectory() as home:
        for quantization in ("float32", "bfloat16", "int8"):
            folder = exported(run, Path(home), "ctranslate2", quantization)
            same = sum(map(eq, by_pieces(run, folder, sources, quantization), expected))
            if quantization == "bfloat16":
                row(f"CTranslate2 {ctranslate2.__version__}", quantization, count(same), "", "")
                continue
            found = with_ctranslate2(run, quantization).translator.nbest(sources, 1)
            both = [(a.score, b.score) for (a,), (b,) in zip(found, best, strict=True) if a.text == b.text]
            furthest = max(abs(a - b) for a, b in both)
            row(
                f"CTranslate2 {ctranslate2.__version__}", quantization, count(same), count(len(both)), f"{furthest:.1e}"
            )
        for python in pythons:
            folder = exported(run, Path(home), "huggingface", "float32")
            name, found = by_transformers(python, folder, 1, sources)
            _, beams = by_transformers(python, folder, run.translator.search.width, sources)
            same = [sum(map(eq, each, them)) for each, them in ((found, expected), (beams, [a.text for (a,) in best]))]
            row(name, "float32", *map(count, same), "")


def exported(run: Run, home: Path, format: str, quantization: str) -> Path:
    folder = home / f"{format}_{quantization}"
    if not folder.exists():
        write_folder(run, format=format, output=str(folder), quantization=quantization, max_positions=1024)
    return folder


def by_pieces(run: Run, folder: Path, sources: list[str], kind: str) -> list[str]:
    """Greedy translations by CTranslate2 alone."""
    engine = ctranslate2.Translator(str(folder), compute_type=kind if kind == "int8" else "default", intra_threads=1)
    source, target = run.tokenizer.source.vocabulary, run.tokenizer.target.vocabulary
    pieces = [[source[number] for number in ids] for ids in run.tokenizer.source.encode(sources)]
    found = engine.translate_batch(pieces, beam_size=1, max_batch_size=BATCH, min_decoding_length=0)
    numbers = {piece: number for number, piece in enumerate(target)}
    return run.tokenizer.target.decode([[numbers[piece] for piece in each.hypotheses[0]] for each in found])


def by_transformers(python: str, folder: Path, beams: int, sources: list[str]) -> list:
    command = [python, "-c", TRANSFORMERS, str(folder), str(beams)]
    return json.loads(
        subprocess.run(command, input=json.dumps(sources), stdout=subprocess.PIPE, text=True, check=True).stdout
    )


def speeds(directory: str, sentences: int = 300, rounds: int = 3) -> None:
    """Pieces of source and translation in a second of processor time, on one thread: the median of some rounds, of all
    in turn."""
    torch.set_num_threads(1)
    run = open_run(directory, device="cpu")
    sources = list(run.data().data["test"]["source"])[:sentences]
    once = replace(run, translator=make_translator(run.model, run.tokenizer, greedy(run.translator.search), False))
    row("tokens a second", "weights", "greedy", str(run.translator.search))
    row(*["---"] * 4)
    engines = {("headcount", "float32"): [once, run]}
    for precision in ("float32", "int8"):
        engines["engine=ctranslate2", precision] = [with_ctranslate2(each, precision) for each in (once, run)]
    found: dict[tuple[str, str], list[list[float]]] = {name: [] for name in engines}
    for _ in range(rounds + 1):
        for name, both in engines.items():
            found[name].append([speed(each, sources) for each in both])
    for name, each in found.items():
        row(*name, *(f"{statistics.median(column):,.0f}" for column in zip(*each[1:], strict=True)))


def speed(run: Run, sources: list[str]) -> float:
    start = time.process_time()
    found = run.translator.translate(sources)
    seconds = time.process_time() - start
    sides = run.tokenizer.source.encode(sources) + run.tokenizer.target.encode(found)
    return sum(map(len, sides)) / seconds


def count(same: int) -> str:
    return f"{same:,}"


def row(*cells: str) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)  # noqa: T201


if __name__ == "__main__":
    speeds(sys.argv[1]) if sys.argv[2:] == ["speed"] else main(*sys.argv[1:])
