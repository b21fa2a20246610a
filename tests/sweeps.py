"""Toy sweeps on disk without training: translations are references with some words changed."""

import json
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from headcount.evaluation.metrics import score

TEXT = "der Hund sieht den Kater und ein Wolf hört die Katze im Garten während es dort sehr lange regnet"
WORDS = TEXT.split()
PHENOMENA = {"agreement": (96, 80), "order": (100, 100), "pronoun": (95, 70)}
STUDY = {
    "title": "Heads at constant width",
    "varies": "model.num_heads",
    "label": "heads",
    "constant": ["parameters", "operations_per_token", "train.steps"],
    "about": "d_head = d_model / heads, so that parameters and operations stay.",
}
SIGNATURES = {
    "bleu": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0",
    "chrf": "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0",
}


def sentences(number: int, seed: int = 0) -> list[str]:
    """Lines of German words."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(4, 14))) + "." for _ in range(number)]


def changed(references: Sequence[str], errors: float, seed: int) -> list[str]:
    """Translations with so many of the words wrong, mostly those that are wrong with every seed."""
    hard, own = random.Random(0), random.Random(seed)

    def word(right: str) -> str:
        shared, wrong = hard.random(), hard.choice(WORDS)
        return wrong if (own.random() if own.random() < 0.1 else shared) < errors else right

    return [" ".join(map(word, line.split())) for line in references]


def _figures(scores: Mapping[str, Mapping[str, float]], errors: float, loss: float, seed: int) -> dict:
    """What metrics.json says of such a run."""
    draw = random.Random(f"{seed} {errors}")
    contrastive = {
        name: {
            grade: {
                "accuracy": 100 * sum(draw.random() < right / 100 - errors / 4 for _ in range(125)) / 125,
                "pairs": 125,
            }
            for grade, right in zip(("easy", "hard"), grades, strict=True)
        }
        for name, grades in PHENOMENA.items()
    }
    return {
        "seed": seed,
        "parameters": 919040,
        "operations_per_token": 1234567,
        "train": {
            "steps": 2000,
            "seconds": 131.0 + draw.random(),
            "tokens_per_second": 57041.0,
            "precision": "bf16-mixed",
        },
        "versions": {"python": "3.11.7", "torch": "2.13.0"},
        "hardware": {"processor": "Some processor", "threads": 1, "gpu": None},
        "valid": {**scores["valid"], "loss": loss, "ppl": math.exp(loss)},
        "test": {**scores["test"], "signature": SIGNATURES, "search": {"beam": 5}, "contrastive": contrastive},
        "config_hash": "0" * 16,
    }


def _write_curve(folder: Path, loss: float) -> None:
    """Learning curves that end at the loss."""
    folder.mkdir()
    curve = [
        f"0,{step},{0.1 if step % 500 else ''},,{30 - 20 / step},{loss + 200 / step},{math.exp(loss + 200 / step)}"
        for step in range(499, 2000, 500)
    ]
    header = "epoch,step,train/loss,train/lr,valid/bleu,valid/loss,valid/ppl"
    (folder / "metrics.csv").write_text("\n".join([header, *curve, ""]), encoding="utf-8")


def write_run(
    folder: Path,
    references: Sequence[str],
    errors: float,
    seed: int,
    config: Mapping | None = None,
    metrics: Mapping | None = None,
) -> None:
    """A finished run, whose figures follow from the share of errors."""
    folder.mkdir(parents=True)
    text = {"test": list(references), "valid": sentences(len(references), seed=1)}
    hypotheses = {split: changed(lines, errors, seed) for split, lines in text.items()}
    scores = {
        split: {name: figure.value for name, figure in score(hypotheses[split], lines, "13a").items()}
        for split, lines in text.items()
    }
    loss = 1 + 4 * errors
    figures = _figures(scores, errors, loss, seed)
    (folder / "metrics.json").write_text(json.dumps(figures | dict(metrics or {})), encoding="utf-8")
    settings = {"seed": seed, "name": "sweep", "data": {"kind": "grammar"}, "model": {"num_heads": 4, "norm": "pre"}}
    (folder / "config.yaml").write_text(yaml.safe_dump(settings | dict(config or {})), encoding="utf-8")
    for split, own in text.items():
        for kind, lines in {"hyp": hypotheses[split], "ref": own}.items():
            (folder / f"{split}.{kind}.de").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    _write_curve(folder / "logs", loss)


def write_sweep(
    folder: Path,
    rows: Mapping[int, float],
    seeds: Sequence[int] = (1, 2, 3),
    lines: int | Sequence[str] = 120,
    study: Mapping | None = STUDY,
    spread: float = 0.01,
) -> Path:
    """Runs of each number of heads with such a share of errors, and the plan of all."""
    references = sentences(lines) if isinstance(lines, int) else lines
    jobs = {}
    for heads, errors in rows.items():
        for seed in seeds:
            overrides = [f"model.num_heads={heads}", f"seed={seed}"]
            name = ",".join(overrides)
            jobs[name] = ["study=heads_fixed_width", *overrides]
            luck = random.Random(1000 * heads + seed).gauss(0, spread)
            config = {"model": {"num_heads": heads, "norm": "pre"}} | ({"study": dict(study)} if study else {})
            write_run(folder / name, references, errors + luck, seed, config)
    write_plan(folder, jobs)
    return folder


def write_plan(folder: Path, jobs: Mapping[str, Sequence[str]]) -> None:
    (folder / "sweep.json").write_text(json.dumps({"jobs": jobs}), encoding="utf-8")
