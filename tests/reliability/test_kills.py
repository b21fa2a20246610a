"""Kill campaign: trainings that are killed at random moments and started again end as one that was never killed.

KILLS=1000 make test-reliability ARGS="-k kill"
"""

import json
import multiprocessing
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from headcount.cli import main

KILLS = int(os.environ.get("KILLS", "50"))
PRELOADED = ["headcount.commands.train", "pytorch_lightning.loggers", "headcount.training.muon"]
COMMON = (
    *("trainer=cpu", "threads=1", "resume=auto", "data.train_size=240", "data.valid_size=16", "data.test_size=16"),
    *("tokenizer.vocab_size=320", "data.batch_tokens=300", "schedule.warmup_steps=4", "steps=30", "logger=csv"),
    *("model.d_model=16", "model.num_heads=2", "model.d_feed_forward=16", "model.encoder_layers=1"),
    *("model.decoder_layers=1", "model.dropout=0.1", "validation.every=7", "validation.samples=1"),
    *("checkpoint.every=4", "search.max_ratio=1", "search.max_extra=4", "trainer.log_every_n_steps=1"),
)
RECIPES = {
    "checkpoints": ("trainer.precision=bf16-mixed", "trainer.accumulate_grad_batches=2", "averaging.share=0.5"),
    "ema": ("averaging.kind=ema", "segmentation.kind=bpe_dropout", "loss.kind=r_drop", "model.layer_dropout=0.2"),
    "best": ("averaging.kind=best", "validation.patience=3", "optimizer=adamw", "checkpoint.keep=[0,9,20]"),
    "preparation": ("data.directory=data", "steps=8", "checkpoint.every=2", "averaging.kind=none"),
}


def train(folder: Path, words: tuple[str, ...]) -> None:
    """In a process of its own: `headcount train`, whose output goes to a file."""
    os.chdir(folder)
    with (folder / "terminal.txt").open("a") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.argv = ["headcount", "train", *words]
    main()


def process(folder: Path, words: tuple[str, ...], seconds: float | None = None) -> float:
    """Train in a process that is killed after so many seconds, unless it has ended; the seconds that it took."""
    context = multiprocessing.get_context("forkserver")  # its processes have imported everything
    context.set_forkserver_preload(PRELOADED)
    child, begin = context.Process(target=train, args=(folder, words)), time.monotonic()
    child.start()
    child.join(seconds if seconds is not None else 600)
    if seconds is not None:
        child.kill()
        child.join()
    assert child.exitcode in (0, -9 if seconds is not None else 0), (folder / "terminal.txt").read_text()
    return time.monotonic() - begin


def left(run: Path) -> dict[str, Any]:
    """All that must not depend on what happened to a run: its files by name, without times."""
    found: dict[str, Any] = {}
    for path in sorted(each for each in run.rglob("*") if each.is_file()):
        name = str(path.relative_to(run))
        if path.name == "metrics.json":
            found[name] = json.loads(path.read_text())
            for measured in ("seconds", "tokens_per_second"):
                del found[name]["train"][measured]
        elif path.suffix != ".ckpt" and path.name not in ("train.log", ".lock"):
            found[name] = path.read_bytes()
    state = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    found |= {f"last.ckpt {name}": str(state[name]) for name in ("global_step", "state_dict", "optimizer_states")}
    return found


@pytest.mark.reliability
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_run_killed_at_random_moments_ends_as_one_that_was_never_killed(recipe, tmp_path):
    draw = random.Random(f"{recipe} {os.environ.get('SEED', 1)}")
    words = (*COMMON, f"data.directory={tmp_path}/data", *RECIPES[recipe], "hydra.run.dir=runs/run")
    for name in ("prepare", "whole"):
        (tmp_path / name).mkdir()
        seconds = process(tmp_path / name, words)
    expected = left(tmp_path / "whole" / "runs" / "run")
    kills = runs = 0
    while kills < KILLS / len(RECIPES):
        folder = tmp_path / f"run{runs}"
        folder.mkdir()
        for _ in range(draw.randint(1, 4)):
            process(folder, words, draw.uniform(0, seconds))
            kills += 1
        process(folder, words)
        runs += 1
        found = left(folder / "runs" / "run")
        assert found.keys() == expected.keys()
        assert not [name for name in found if found[name] != expected[name]], folder
    print(f"kills: {recipe}: {kills} kills in {runs} runs, all ended as one never killed")  # noqa: T201
