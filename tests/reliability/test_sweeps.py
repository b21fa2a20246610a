"""Sweeps that are killed: their jobs end with them, and no job is trained twice."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SCRIPTS, completed
from kills import left
from processes import WAIT, processes_in, wait_until

pytestmark = pytest.mark.reliability

JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
ENDLESS = ("steps=100000", "validation.every=100000", "checkpoint.every=5", "seed=1,2", "threads=1")


@pytest.fixture
def sweep(tmp_path):
    """A function that starts a sweep in tmp_path; whatever works there in the end is killed."""

    def start(*words: str) -> subprocess.Popen:
        line = [sys.executable, str(SCRIPTS / "train.py"), "--multirun", *words]
        return subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    yield start
    for number in processes_in(tmp_path):
        os.kill(number, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("begun", ["checkpoints/last.ckpt", "job.json"])
@pytest.mark.parametrize("launcher", [(), JOBLIB], ids=["one", "joblib"])
def test_a_sweep_that_is_killed_by_its_number_takes_its_jobs_with_it(launcher, begun, number, sweep, tiny, tmp_path):
    """In training, and while the processes of its jobs begin."""
    killed = sweep(*tiny, *ENDLESS, *launcher)
    wait_until(lambda: len(list(tmp_path.glob(f"runs/*/*/{begun}"))) == (2 if launcher else 1))
    killed.send_signal(number)
    assert killed.wait(60) in (128 + number, -number)
    seconds = wait_until(lambda: not processes_in(tmp_path), 60)
    if begun.endswith(".ckpt"):
        logs = [path.read_text() for path in tmp_path.glob("runs/*/*/job.log")]
        assert all("stopped at step" in log for log in logs)
        assert len(logs) == (2 if launcher else 1)
    print(f"{number.name} at {begun}: its processes had ended {seconds:.1f} s after it")  # noqa: T201


def test_a_sweep_that_was_killed_and_is_started_twice_at_once_trains_no_job_twice(sweep, tiny, tmp_path):
    short = (*tiny, "threads=1", "steps=60", "checkpoint.every=5", "search.beam=1")
    jobs = ("seed=1,2", "hydra.sweep.subdir='seed=${seed}'")
    killed = sweep(*short, *jobs)
    folder = tmp_path / "runs" / "sweep_multi30k"
    wait_until((folder / "seed=1" / "checkpoints" / "last.ckpt").exists)
    killed.kill()
    killed.wait()
    both = [sweep(*short, *jobs) for _ in range(2)]
    assert [each.wait(2 * WAIT) for each in both] == [0, 0]
    for seed in (1, 2):
        completed("train", *short, f"seed={seed}", f"hydra.run.dir=whole/{seed}", cwd=tmp_path)
        job, whole = folder / f"seed={seed}", tmp_path / "whole" / str(seed)
        assert (job / "train.log").read_text().count("translating the test split") == 1
        assert result(job) == result(whole)
    print("a sweep that was killed and started twice at once: 2 of 2 jobs trained once, to the same bits")  # noqa: T201


def result(run: Path) -> dict[str, object]:
    """What a run leaves, without its times and its config, whose settings of the machine differ."""
    names = ("metrics.json", "model.safetensors", "logs/metrics.csv", "test.hyp.de", "valid.hyp.de")
    return {name: left(run)[name] for name in names}
