"""Sweeps: what is done once, what resumes, what fails alone. Most trainings here are of a script that only pretends,
since what is tested is what happens around them; the last test has real ones."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SCRIPTS, command, completed, failed
from omegaconf import OmegaConf
from processes import ENVIRONMENT, WAIT, processes_in, wait_until

from headcount.run import sweep as sweeps
from headcount.run.resolvers import job_directory
from headcount.run.sweep import command_of_a_job, environment_of_a_job, gpus_of, read_plan, threads_of, why_unfinished

PRETENDED = """
import json, os, signal, sys, time
from pathlib import Path
words = dict(word.split("=", 1) for word in sys.argv[1:])
run = Path(words["hydra.run.dir"].strip("'"))
with (run / "starts").open("a") as starts:
    starts.write(" ".join(sys.argv[1:]) + " OMP_NUM_THREADS=" + os.environ.get("OMP_NUM_THREADS", "") + "\\n")
fate = words.get("model.num_heads")
if fate == "9":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    os.kill(os.getppid(), signal.SIGTERM)
    signal.sigwait([signal.SIGTERM])
    sys.exit(143)
if fate == "3" and not Path("mended").exists():
    sys.stderr.write("error: three is too many\\n")
    sys.exit(2)
(run / "metrics.json").write_text(json.dumps({"config_hash": "x"}))
"""


@pytest.fixture
def pretended(tmp_path, monkeypatch):
    """Sweeps in tmp_path whose jobs train nothing."""
    (tmp_path / "pretended.py").write_text(PRETENDED)

    def words(config, directory):
        python, *_ = command = command_of_a_job(config, directory)
        return [python, str(tmp_path / "pretended.py"), *command[4:]]

    monkeypatch.setattr(sweeps, "command_of_a_job", words)
    return tmp_path


def starts(sweep, job):
    return (sweep / job / "starts").read_text().splitlines()


def multirun(folder, *words, of=completed):
    return of("train", "--multirun", *words, "threads=1", cwd=folder)


@pytest.mark.medium
def test_a_job_that_fails_stops_no_other_and_only_what_is_missing_is_done_again(pretended, monkeypatch):
    """Also where a setting of what is saved is added: the folders are the same."""
    monkeypatch.setattr(sweeps, "check_finished", lambda *_: None)  # what only pretends leaves no config
    folder = pretended / "runs" / "sweep_grammar"
    given = ("model.num_heads=1,3,4", "optimizer.lr=0.5")
    result = multirun(pretended, *given, of=command)
    assert result.code == 2
    assert "failed: model.num_heads=3; 1 of 3 jobs done" in result.err  # without what all jobs have
    assert "2 of 3 jobs done\nnot done: model.num_heads=3: three is too many (runs/sweep_grammar/" in result.out
    assert "the same command again does what is missing" in result.out
    (pretended / "mended").touch()
    result = multirun(pretended, *given, "checkpoint.every=100")
    assert "3 of 3 jobs done" in result.out
    assert "next:  headcount report sweep=runs/sweep_grammar" in result.out.replace(f"{sys.prefix}/bin/", "")
    jobs = [f"model.num_heads={heads},optimizer.lr=0.5" for heads in (1, 3, 4)]
    assert [*read_plan(folder)] == jobs
    assert [len(starts(folder, job)) for job in jobs] == [1, 2, 1]
    again = f"checkpoint.every=100 threads=1 hydra.run.dir='{folder / jobs[1]}' resume=auto OMP_NUM_THREADS=1"
    assert starts(folder, jobs[1])[1].endswith(again)
    assert not (pretended / "runs" / "latest").exists()


@pytest.mark.medium
def test_a_signal_reaches_the_jobs_and_begins_no_other(pretended):
    result = multirun(pretended, "model.num_heads=9,1", of=command)
    assert result.code == 128 + signal.SIGTERM
    assert "0 of 2 jobs done\nnot done: model.num_heads=9: stopped\n" in result.out
    assert [path.parent.name for path in pretended.glob("runs/*/*/starts")] == ["model.num_heads=9"]


@pytest.mark.medium
def test_a_finished_job_is_left_alone_unless_it_is_of_another_config_or_text(pretended, home, tiny, text):
    job = pretended / "runs" / "sweep_multi30k" / "job"
    shutil.copytree(home / "runs" / "second", job)
    shutil.copytree(text, pretended / "other")
    words = (*tiny, "hydra.sweep.subdir=job")
    multirun(pretended, *words, f"data.root={pretended / 'other'}")  # the same text elsewhere
    (pretended / "other" / "test.de").write_bytes((text / "test.de").read_bytes().replace(b"Hund", b"Hahn"))
    for other, expected in {
        "model.dropout=0.5": "model.dropout=0.1, now 0.5",
        f"data.root={pretended / 'other'}": "data.fingerprint=",
    }.items():
        (line,) = multirun(pretended, *words, other, of=failed)
        assert f"holds a run of another config ({expected}" in line
    assert not (job / "starts").exists()


@pytest.mark.parametrize(
    ("overrides", "several", "name"),
    [
        (["seed=2", "model.num_heads=4", "data.root=/a/b"], [], "model.num_heads=4,seed=2"),
        (["recipe=multi30k_short", "study=kv_heads", "seed=1", "name=x"], [], "seed=1"),
        (["checkpoint.every=100", "logger=csv", "threads=2", "++data.root=/x", "seed=1"], [], "seed=1"),
        (["threads=1", "data.workers=2", "seed=1"], ["threads"], "seed=1,threads=1"),
        (["study.arm=rnn", "study=lineage"], [], "study.arm=rnn"),
        (["data.root=a_b"], ["data.root"], "data.root=a_b"),
        (["name=x"], [], "as_it_is"),
    ],
)
def test_the_folder_of_a_job_is_named_after_what_is_learnt_or_swept(overrides, several, name):
    assert job_directory(overrides, several) == name


@pytest.mark.parametrize("letter", ["🙂", "e\u0301", "/"])
def test_the_name_of_a_folder_fits_in_the_bytes_that_a_file_system_takes(letter, tmp_path):
    names = [job_directory([f"data.target={number * letter}", f"seed={number}"]) for number in range(0, 300, 7)]
    assert len(set(names)) == len(names)
    for name in names:
        (tmp_path / name).mkdir()
    assert all(name.endswith(f"seed={number}") for name, number in zip(names, range(0, 300, 7), strict=True))


def test_jobs_at_once_share_cores_and_gpus(monkeypatch):
    monkeypatch.setattr(sweeps, "cores", lambda: 8)
    jobs = [OmegaConf.create({"threads": threads, "trainer": {"devices": n}}) for threads, n in ((None, 1), (None, 2))]
    assert [threads_of(job, 2) for job in jobs] == [4, 2]
    assert threads_of(jobs[0], 16) == 1
    assert [gpus_of(place, 1, ["4", "5", "6"]) for place in range(4)] == [["4"], ["5"], ["6"], ["4"]]
    assert [gpus_of(place, 2, ["4", "5", "6"]) for place in range(2)] == [["4", "5"], ["6", "4"]]
    assert gpus_of(0, 1, ["4"]) == []


def test_a_job_has_an_environment_of_its_own(monkeypatch):
    launchers = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_RUN_ID", "PL_GLOBAL_SEED"}
    for name in launchers:
        monkeypatch.setenv(name, "1")
    environment = environment_of_a_job(5, ["6"])
    assert not launchers & set(environment)
    assert environment["PATH"] == os.environ["PATH"]
    assert (environment["OMP_NUM_THREADS"], environment["CUDA_VISIBLE_DEVICES"]) == ("5", "6")


@pytest.mark.parametrize("devices", [1, 2])
def test_the_command_of_a_job(devices, tmp_path):
    sources = [{"provider": "main", "path": "/conf"}, {"provider": "command-line", "path": "/my"}]
    hydra = {"overrides": {"task": ["data=copy", "seed=1"]}, "runtime": {"config_sources": sources}}
    line = command_of_a_job(OmegaConf.create({"hydra": hydra, "trainer": {"devices": devices}}), tmp_path)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"] if devices == 2 else []
    assert line[1:-5] == [*torchrun, "-m", "headcount", "train"]
    assert line[-5:] == ["--config-dir=/my", "data=copy", "seed=1", f"hydra.run.dir='{tmp_path}'", "resume=auto"]


def test_the_message_of_a_failed_job(tmp_path):
    log = tmp_path / "job.log"
    for text, message in (("error: a\nerror: b\n", "a; b"), ("x\nKeyError: x\n", "KeyError: x"), ("", "no output")):
        log.write_text(text)
        assert why_unfinished(tmp_path).startswith(f"{message} (")


def result(run: Path):
    """All figures but those of time, and the weights."""
    figures = json.loads((run / "metrics.json").read_text())
    for measured in ("seconds", "tokens_per_second"):
        del figures["train"][measured]
    return figures, (run / "model.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_sweep_that_is_killed_takes_its_jobs_with_it_and_typed_again_does_each_once(number, tiny, tmp_path):
    """Also where it is typed twice at once."""
    short = (*tiny, "threads=1", "steps=300", "validation.every=300", "checkpoint.every=5")
    line = [sys.executable, str(SCRIPTS / "train.py"), "--multirun", *short, "seed=1,2", "hydra.launcher.n_jobs=2"]
    line.append("hydra.sweep.subdir='seed=${seed}'")
    folder = tmp_path / "runs" / "sweep_multi30k"
    killed = subprocess.Popen(line, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    wait_until(lambda: len(list(folder.glob("*/checkpoints/last.ckpt"))) == 2, process=killed)
    killed.send_signal(number)
    assert killed.wait(60) in (128 + number, -number)
    wait_until(lambda: not processes_in(tmp_path), 60)
    both = [subprocess.Popen(line, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [each.wait(2 * WAIT) for each in both] == [0, 0]
    for seed in (1, 2):
        completed("train", *short, f"seed={seed}", f"hydra.run.dir=whole/{seed}", cwd=tmp_path)
        job = folder / f"seed={seed}"
        assert (job / "train.log").read_text().count("translating the test split") == 1
        assert result(job) == result(tmp_path / "whole" / str(seed))
