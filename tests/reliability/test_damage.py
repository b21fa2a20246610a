"""Damaged checkpoints: every one is detected by name, and the one before it is used."""

import random
import shutil
import sys
from pathlib import Path

import pytest
import torch

from headcount.run.resume import newest_checkpoint
from headcount.training.seal import seal

CUTS, FLIPS = 50, 50


@pytest.fixture
def run(home, tmp_path) -> Path:
    """A run with the two newest checkpoints, of steps 8 and 7."""
    run = shutil.copytree(home / "runs" / "second", tmp_path / "run")
    before = run / "checkpoints" / "last-1.ckpt"
    state = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    torch.save({**state, "global_step": 7}, before)
    seal(before)
    return run


@pytest.mark.reliability
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_used(run):
    last, before = (run / "checkpoints" / name for name in ("last.ckpt", "last-1.ckpt"))
    whole = last.read_bytes()
    assert newest_checkpoint(run) == (last, 8, [])
    draw = random.Random(1)
    damaged = [whole[:size] for size in draw.sample(range(len(whole)), CUTS)]
    for place in draw.sample(range(len(whole)), FLIPS):
        damaged.append(whole[:place] + bytes([whole[place] ^ 1 << draw.randrange(8)]) + whole[place + 1 :])
    detected = 0
    for content in damaged:
        last.write_bytes(content)
        path, step, (note,) = newest_checkpoint(run)
        detected += (path, step) == (before, 7) and f"{last} is damaged" in note
    sys.stdout.write(f"\ncheckpoints: {detected} of {CUTS + FLIPS} damaged ones detected, the one before used\n")
    assert detected == CUTS + FLIPS
