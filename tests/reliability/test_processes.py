"""Training with two processes: one that is killed ends the other, and uneven data hangs neither."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import SCRIPTS
from processes import DDP, ENVIRONMENT, TORCHRUN, processes_in, wait_until

from headcount.run.resume import newest_checkpoint

pytestmark = pytest.mark.reliability

RUN = (*DDP, "hydra.run.dir=run", "if_exists=resume")
MINUTE = 60


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path):
    """Whatever works in tmp_path in the end is killed."""
    yield
    for number in processes_in(tmp_path):
        os.kill(number, signal.SIGKILL)


def two(folder: Path, *words: str) -> subprocess.Popen:
    return subprocess.Popen(
        [*TORCHRUN, SCRIPTS / "train.py", *words, *RUN], cwd=folder, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    )


def children(number: int) -> list[int]:
    """The processes of a process, in the order of their start."""
    return [int(child) for child in Path(f"/proc/{number}/task/{number}/children").read_text().split()]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_is_killed_ends_the_other_with_a_line_and_the_run_resumes(tiny, tmp_path, rank):
    endless = (*tiny, "steps=100000", "validation.every=100000", "checkpoint.every=10")
    launcher = two(tmp_path, *endless)
    try:
        wait_until((tmp_path / "run" / "checkpoints" / "last-1.ckpt").exists, process=launcher)
        killed, other = children(launcher.pid)[:: 1 if rank == 0 else -1]
        os.kill(killed, signal.SIGKILL)
        begin = time.monotonic()
        _, errors = launcher.communicate(timeout=2 * MINUTE)
        seconds = time.monotonic() - begin
    finally:
        launcher.kill()
    print(f"rank {rank} killed: the other one and the launcher had ended after {seconds:.1f} s")  # noqa: T201
    lines = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert launcher.returncode
    assert seconds < MINUTE
    assert not Path(f"/proc/{other}").exists()
    assert len(lines) == 1, errors
    assert "another process of this training has ended" in lines[0]
    step = newest_checkpoint(tmp_path / "run")[1]
    resumed = two(tmp_path, *endless)
    try:
        wait_until((tmp_path / "run" / "checkpoints" / "last.ckpt").exists, process=resumed)
        wait_until(lambda: newest_checkpoint(tmp_path / "run")[1] > step, process=resumed)
    finally:
        resumed.terminate()
    assert resumed.wait(MINUTE)


@pytest.mark.parametrize(("pairs", "line"), [(3, None), (1, "1 pairs are too few for 2 batches at once")])
def test_uneven_data_hangs_no_process(tiny, text, tmp_path, pairs, line):
    """Three pairs to validate on are shared by two processes as two and one; a single one is refused."""
    root = shutil.copytree(text, tmp_path / "uneven")
    for split, number in {"train": 137, "valid": pairs}.items():
        for language in ("en", "de"):
            path = root / f"{split}.{language}"
            path.write_text("".join(path.read_text().splitlines(keepends=True)[:number]))
    words = [f"data.root={root}" if word.startswith("data.root=") else word for word in tiny]
    launcher = two(tmp_path, *words)
    try:
        _, errors = launcher.communicate(timeout=10 * MINUTE)
    finally:
        launcher.kill()
    assert (launcher.returncode == 0) == (line is None), errors
    assert line is None or line in errors
    print(f"{pairs} pairs to validate on, for 2 processes: {line or 'trained to the end'}")  # noqa: T201
