"""Sweeps: what is done once, what resumes, what fails alone. Most trainings here are of a script that only pretends,
since what is tested is what happens around them; test_end_to_end has real ones."""

import concurrent.futures
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import SCRIPTS, command, completed, failed
from filelock import FileLock, Timeout
from headcount.run.sweep_status import SweepStatus
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from processes import processes_in, wait_until
from torch.distributed.run import parse_args

from headcount.run.identity import config_hash, differences
from headcount.run.resolvers import swept
from headcount.run.sweep import (
    TORCHRUN,
    command_of_a_job,
    environment_of_a_job,
    failure,
    gpus_of_a_job,
    job_directory,
    read_plan,
    threads_of_a_process,
    train_in_child,
    write_state,
)

PRETENDED = """
import json, os, signal, sys, time
from pathlib import Path
words = dict(word.split("=", 1) for word in sys.argv[1:])
run = Path(words.get("hydra.run.dir", words.get("resume")).strip("'"))
with (run / "starts").open("a") as starts:
    starts.write(" ".join(sys.argv[1:]) + " OMP_NUM_THREADS=" + os.environ.get("OMP_NUM_THREADS", "") + "\\n")
fate = words.get("model.num_heads")
if fate == "7" and "resume" not in words:
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "last.ckpt").touch()
    sys.exit(143)
if fate == "5":
    while not (run / "go").exists():
        time.sleep(0.01)
if fate == "9":
    os.kill(os.getpid(), signal.SIGTERM)
if fate == "3" and not Path("mended").exists():
    sys.stderr.write("error: three is too many\\n")
    sys.exit(2)
(run / "metrics.json").write_text(json.dumps({"config_hash": "x"}))
"""


@pytest.fixture
def pretended(tmp_path, monkeypatch):
    """Sweeps in tmp_path whose jobs train nothing."""
    (tmp_path / "pretended.py").write_text(PRETENDED)
    monkeypatch.setattr("headcount.run.sweep.START", (str(tmp_path / "pretended.py"),))
    return tmp_path


def starts(sweep, job):
    return (sweep / job / "starts").read_text().splitlines()


def multirun(folder, *words, of=completed):
    return of("train", "--multirun", *words, "threads=1", cwd=folder)


@pytest.mark.slow
def test_a_job_that_fails_fails_alone_and_only_what_is_missing_is_done_again(pretended):
    sweep = pretended / "runs" / "sweep_grammar"
    result = multirun(pretended, "model.num_heads=1,3,4", of=command)
    assert result.code == 2
    line = "error: model.num_heads=3: three is too many; see runs/sweep_grammar/model.num_heads=3/job.log"
    assert [each for each in result.errors if each.startswith("error")] == [line]
    assert "2 of 3 jobs done, 1 failed" in result.out
    assert "failed: model.num_heads=3: three is too many" in result.out
    assert "the same command again" in result.out
    (pretended / "mended").touch()
    result = multirun(pretended, "model.num_heads=1,3,4")
    assert "3 of 3 jobs done" in result.out
    assert "next:  headcount report sweep=runs/sweep_grammar" in result.out
    assert [len(starts(sweep, f"model.num_heads={heads}")) for heads in (1, 3, 4)] == [1, 2, 1]
    assert not (pretended / "runs" / "latest").exists()
    # More seeds: what is there stays, though it was not named after a seed.
    result = multirun(pretended, "model.num_heads=1,4", "seed=1,2", of=command)
    assert "4 of 4 jobs done" in result.out
    assert len(read_plan(sweep).jobs) == 4


@pytest.mark.slow
def test_a_plan_has_the_folder_that_was_typed(pretended):
    """Or the command that a report prints would begin another sweep."""
    multirun(pretended, "hydra.sweep.dir=elsewhere", "model.num_heads=1")
    typed = ("model.num_heads=1", "threads=1", "hydra.sweep.dir=elsewhere")
    assert read_plan(pretended / "elsewhere").overrides == typed


@pytest.mark.medium
def test_a_sweep_says_where_it_is_to_a_makefile(pretended, monkeypatch):
    monkeypatch.setenv("HEADCOUNT_SWEEP_FILE", str(pretended / "place"))
    multirun(pretended, "seed=1", "name='mine (1)'")
    place = OverridesParser.create().parse_override((pretended / "place").read_text())
    assert (place.key_or_group, place.value()) == ("sweep", "runs/mine (1)_grammar")
    assert read_plan(pretended / place.value()).jobs


@pytest.mark.slow
def test_a_stopped_job_is_resumed(pretended):
    sweep = pretended / "runs" / "sweep_grammar"
    result = multirun(pretended, "model.num_heads=7,8", of=command)
    assert result.code == 2
    assert "1 of 2 jobs done, 1 stopped" in result.out
    multirun(pretended, "model.num_heads=7,8")
    first, second = starts(sweep, "model.num_heads=7")
    assert "model.num_heads=7 " in first
    assert second.startswith(f"resume='{sweep / 'model.num_heads=7'}'")
    assert second.endswith("threads=1 OMP_NUM_THREADS=1")


@pytest.mark.medium
def test_a_resumed_job_gets_the_settings_that_its_config_lacks(pretended):
    sweep = pretended / "runs" / "sweep_grammar"
    again = ["trust=[my.own]", "data.directory=d", "data.workers=1", "logger=csv", "checkpoint.every=9"]
    assert "1 stopped" in multirun(pretended, "model.num_heads=7", "seed=1", *again, of=command).out
    multirun(pretended, "model.num_heads=7", "seed=1", *again)
    (job,) = sweep.glob("*/starts")
    assert starts(sweep, job.parent.name)[1].split()[1:] == [*again, "threads=1", "OMP_NUM_THREADS=1"]


@pytest.mark.medium
def test_two_sweeps_at_once_start_a_job_once(pretended):
    with concurrent.futures.ThreadPoolExecutor() as pool:
        job = pretended / "runs" / "sweep_grammar" / "model.num_heads=5"
        other = pool.submit(wait_and_take, job)
        multirun(pretended, "model.num_heads=5")
        assert other.result()
    assert len(starts(job.parent, job.name)) == 1


def wait_and_take(job):
    """Whether, when a job has begun and before it ends, another sweep would have to wait for it."""
    while not (job / "starts").exists():
        time.sleep(0.01)
    try:
        with FileLock(job / ".job.lock", blocking=False):
            return False
    except Timeout:
        return True
    finally:
        (job / "go").touch()


@pytest.mark.medium
def test_a_training_that_is_asked_to_stop_while_it_is_scored_counts_as_stopped(pretended):
    result = multirun(pretended, "model.num_heads=9", of=command)
    assert "1 stopped" in result.out
    assert "the same command resumes it" in result.err


def test_a_resumed_job_gets_the_folder_of_its_text_whatever_hydra_takes_for_the_corpus(monkeypatch, tmp_path):
    sources = [{"provider": "main", "path": "/conf"}, {"provider": "command-line", "path": "/my"}]
    task = ["data=multi30k", "data.root=/a", "seed=1", "trust=[x.Y]"]
    hydra = OmegaConf.create({"overrides": {"task": task}, "runtime": {"config_sources": sources}})
    monkeypatch.setattr("headcount.run.sweep.HydraConfig.get", lambda: hydra)
    command_line = command_of_a_job(OmegaConf.create({"trainer": {"devices": 1}}), tmp_path, resume=True)
    assert command_line[1:5] == ["-m", "headcount", "train", "--config-dir=/my"]
    assert command_line[5:] == [f"resume='{tmp_path}'", "++data.root=/a", "trust=[x.Y]"]


@pytest.mark.medium
def test_a_folder_with_another_config_is_left_alone(pretended, home, tiny):
    job = pretended / "runs" / "sweep_multi30k" / "seed=1"
    job.mkdir(parents=True)
    config = OmegaConf.load(shutil.copy(home / "runs" / "second" / "config.yaml", job))
    multirun(pretended, *tiny, "hydra.sweep.subdir='seed=1'")
    config.optimizer.lr = 0.5
    OmegaConf.save(config, job / "config.yaml")
    before = sorted(path.name for path in job.iterdir())
    (line,) = multirun(pretended, *tiny, "hydra.sweep.subdir='seed=1'", of=failed)
    assert "holds a run of another config (optimizer.lr=0.5, now 0.08); move it away, or give" in line
    assert sorted(path.name for path in job.iterdir()) == before


def test_the_name_of_a_job():
    assert job_directory(["seed=2", "model.num_heads=4", "data.root=/a/b"], "sweep") == "model.num_heads=4,seed=2"
    assert job_directory(["study=heads_fixed_width", "seed=1"], "heads_fixed_width") == "seed=1"
    assert job_directory(["recipe=multi30k_short", "study=kv_heads", "seed=1"], "kv_heads") == "seed=1"
    assert job_directory(["recipe=multi30k_short"], "sweep") == "recipe=multi30k_short"
    assert job_directory(["name=x"], "x") == "as_it_is"
    assert job_directory(["threads=1", "data.workers=2", "seed=1"], "sweep", ["threads"]) == "seed=1,threads=1"
    assert job_directory(["study/arm=rnn", "study=lineage"], "lineage", ["study/arm"]) == "study_arm=rnn"
    places = [job_directory([f"data.root={root}"], "sweep", ["data.root"]) for root in ("a/b", "a_b")]
    assert places[1] == "data.root=a_b" != places[0]
    assert "/" not in places[0]
    long = "data.train=" + 300 * "x/"
    names = {job_directory([long, f"model.num_heads={heads}"], "sweep") for heads in (1, 2)}
    assert len(names) == 2
    assert all(len(name) < 255 and "/" not in name and name.endswith(("=1", "=2")) for name in names)


@pytest.mark.parametrize(
    "innocent",
    [
        "checkpoint.every=100",
        "checkpoint.keep=[1,2]",
        "divergence.stop_after=1",
        "logger.csv.name=x",
        "++data.root=/x",
        "++threads=2",
        "+logger=csv",
    ],
)
def test_a_setting_that_makes_no_other_run_makes_no_other_folder(innocent):
    assert job_directory([innocent, "model.num_heads=4", "seed=1"], "sweep") == "model.num_heads=4,seed=1"
    setting = innocent.partition("=")[0]
    assert innocent.replace("/", "_") in job_directory([innocent, "seed=1"], "sweep", [setting])  # it is swept


@pytest.mark.parametrize("letter", ["ж", "库", "🙂", "e\u0301", "a"])
def test_the_name_of_a_job_fits_in_the_bytes_that_a_file_system_takes(letter, tmp_path):
    def named(length: int, seed: int, swept: tuple[str, ...] = ()) -> str:
        return job_directory([f"data.train={length * letter}/x", f"seed={seed}"], "sweep", swept)

    names = [named(length, seed) for length in range(300) for seed in (1, 2)]
    assert len(set(names)) == len(names)
    for name in [*names, *(named(length, 1, ("data.train",)) for length in range(300))]:
        assert len(name.encode()) <= 255
        assert set(name) <= set(f"data.train={letter}_x,seed=12...0123456789abcdef")  # no part of a letter
        assert name.endswith(("seed=1", "seed=2"))
    (tmp_path / named(299, 1)).mkdir()


@pytest.mark.medium
def test_jobs_that_differ_in_anything_swept_have_folders_of_their_own(pretended):
    sweep = pretended / "runs" / "sweep_multi30k"
    multirun(pretended, "data=multi30k", "data.workers=0", "data.root=a,b")
    places = [f"data.root={root},data=multi30k" for root in "ab"]
    assert sorted(read_plan(sweep).jobs) == sorted(path.parent.name for path in sweep.glob("*/starts")) == places


def test_what_is_swept_may_stand_in_the_config_of_the_sweeper():
    assert swept(["data.root=a,b", "+x=range(3)", "seed=1"], {"threads": "1,2"}) == ["data.root", "+x", "threads"]
    assert swept(["seed=1"], None) == []


@pytest.mark.slow
def test_a_launcher_s_processes_know_what_is_swept(tmp_path):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    assert sweep(tmp_path, "data=multi30k", "data.root=a,b", "hydra/launcher=joblib").wait() != 0  # there are no such
    folders = [f"data.root={root},data=multi30k" for root in "ab"]
    assert sorted(path.parent.name for path in tmp_path.glob("runs/*/*/job.json")) == folders


def test_the_hash_covers_the_settings_that_matter(home):
    config = OmegaConf.load(home / "runs" / "second" / "config.yaml")
    same, other = config.copy(), config.copy()
    same.data.directory, same.data.root, same.threads, same.name = "/x", "/y", 7, "z"
    other.model.num_heads, other.seed = 4, 3
    assert config_hash(same) == config_hash(config) != config_hash(other)
    assert differences(config, other) == "model.num_heads=2, now 4; seed=1, now 3"


@pytest.mark.medium
def test_a_job_is_resumed_when_a_setting_that_makes_no_other_run_is_added(pretended):
    multirun(pretended, "model.num_heads=7", of=failed)
    multirun(pretended, "model.num_heads=7", "checkpoint.every=100")
    (job,) = (pretended / "runs" / "sweep_grammar").glob("*/starts")
    assert job.parent.name == "model.num_heads=7"
    assert "checkpoint.every=100" in job.read_text().splitlines()[1]


@pytest.mark.medium
def test_a_job_that_is_finished_on_other_text_is_not_taken_for_this_one(pretended, home, tiny, text):
    job = shutil.copytree(home / "runs" / "second", pretended / "runs" / "sweep_multi30k" / "as_it_is")
    shutil.copytree(text, pretended / "other")
    common = (*tiny, "hydra.sweep.subdir=as_it_is")
    multirun(pretended, *common)
    assert not (job / "starts").exists()  # it was done
    multirun(pretended, *common, f"data.root={pretended / 'other'}")  # the same text elsewhere
    (pretended / "other" / "test.de").write_bytes((text / "test.de").read_bytes().replace(b"Hund", b"Hahn"))
    (line,) = multirun(pretended, *common, f"data.root={pretended / 'other'}", of=failed)
    assert "holds a run of another config (data.fingerprint=" in line
    assert not (job / "starts").exists()


def plan(sweep, jobs):
    (sweep / "sweep.json").write_text(json.dumps({"jobs": {job: [] for job in jobs}}))


def launcher(monkeypatch, num=0, **settings):
    config = OmegaConf.create({"launcher": settings, "job": {"num": num}})
    monkeypatch.setattr("headcount.run.sweep.HydraConfig.get", lambda: config)


@pytest.mark.parametrize(
    ("settings", "cores", "threads"),
    [
        ({}, 8, None),
        ({"n_jobs": 2}, 8, 4),
        ({"n_jobs": -1}, 8, 2),  # there are only four jobs
        ({"n_jobs": 16}, 2, 1),
        ({"cpus_per_task": 3}, 8, 3),
        ({"ray": {"init": {}, "remote": {"num_cpus": 3}}}, 8, 3),
    ],
)
def test_jobs_share_the_processor(settings, cores, threads, tmp_path, monkeypatch):
    launcher(monkeypatch, **settings)
    monkeypatch.setattr("headcount.run.sweep.cores", lambda: cores)
    plan(tmp_path, "abcd")
    assert threads_of_a_process(tmp_path, 1) == threads
    assert threads_of_a_process(tmp_path, 2) == (threads and max(1, threads // 2))


def test_a_job_has_an_environment_of_its_own(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_RUN_ID", "PL_GLOBAL_SEED"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    launcher(monkeypatch, num=3, n_jobs=2)
    environment = environment_of_a_job(5)
    assert not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_RUN_ID", "PL_GLOBAL_SEED"} & set(environment)
    assert environment["PATH"] == os.environ["PATH"]
    assert environment["OMP_NUM_THREADS"] == "5"
    assert environment["CUDA_VISIBLE_DEVICES"] == "4,6"
    assert environment_of_a_job(None, ["6"])["CUDA_VISIBLE_DEVICES"] == "6"


def test_torchrun_hands_on_the_signals_of_a_cluster(monkeypatch):
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    arguments = parse_args(["train.py"])
    if not hasattr(arguments, "signals_to_handle"):
        pytest.skip("torchrun of this torch has no such setting")
    assert {"SIGTERM", "SIGUSR1", "SIGUSR2"} <= set(arguments.signals_to_handle.split(","))


def test_a_signal_that_comes_while_a_job_begins_reaches_it(tmp_path, monkeypatch):
    def begin(command, log, environment):
        signal.raise_signal(signal.SIGTERM)
        return subprocess.Popen(command)

    launcher(monkeypatch)
    monkeypatch.setattr("headcount.run.sweep.begin_child", begin)
    with pytest.raises(SystemExit) as ended:
        train_in_child([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path, {})
    assert ended.value.code == 128 + signal.SIGTERM


def test_a_job_goes_back_into_the_queue_once_its_training_has_stopped(tmp_path, monkeypatch):
    came, queued = tmp_path / "came", []
    stops = f"import signal, sys; signal.sigwait([signal.SIGUSR2]); open({str(came)!r}, 'w'); sys.exit(140)"

    def begin(command, log, environment):
        signal.raise_signal(signal.SIGUSR2)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])  # until the child waits for it
        child = subprocess.Popen(command)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR2])
        return child

    def requeue(number, frame):  # as submitit's handler
        queued.append((came.exists(), json.loads((tmp_path / "job.json").read_text())["state"]))
        sys.exit(-1)

    launcher(monkeypatch)
    monkeypatch.setattr("headcount.run.sweep.begin_child", begin)
    before = signal.signal(signal.SIGUSR2, requeue)
    try:
        with pytest.raises(SystemExit) as ended:
            train_in_child([sys.executable, "-c", stops], tmp_path, {})
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert ended.value.code == -1
    assert queued == [(True, "stopped")]


def test_a_job_takes_free_gpus(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    launcher(monkeypatch, n_jobs=3)
    plan(tmp_path, "abcd")
    with gpus_of_a_job(tmp_path, 1) as first, gpus_of_a_job(tmp_path, 1) as second:
        assert (first, second) == (["4"], ["5"])
        with gpus_of_a_job(tmp_path, 1) as third:
            assert third == ["6"]
    with gpus_of_a_job(tmp_path, 1) as again, gpus_of_a_job(tmp_path, 2) as two:
        assert (again, two) == (["4"], ["5", "6"])  # as many as trainer.devices
    launcher(monkeypatch, n_jobs=4)  # more jobs than GPUs: the fullest gets no third
    with contextlib.ExitStack() as jobs:
        taken = [jobs.enter_context(gpus_of_a_job(tmp_path, 1)) for _ in range(4)]
    assert taken == [["4"], ["5"], ["6"], ["4"]]


def test_a_job_waits_for_a_gpu_until_one_is_free(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    launcher(monkeypatch, n_jobs=2)
    plan(tmp_path, "ab")
    with contextlib.ExitStack() as others:
        for name in ("5", "4"):
            others.enter_context(FileLock(tmp_path / f".gpu-{name}-0.lock"))
        monkeypatch.setattr(time, "sleep", lambda seconds: others.close())
        with gpus_of_a_job(tmp_path, 1) as gpus:
            assert gpus == ["4"]


def test_gpus_stay_as_they_are_where_jobs_come_one_by_one(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    launcher(monkeypatch)
    with gpus_of_a_job(tmp_path, 1) as gpus:
        assert gpus == []
    assert not list(tmp_path.iterdir())


def test_the_status_of_a_sweep(tmp_path):
    since = time.time()
    for job in "abcdef":
        (tmp_path / job).mkdir()
    write_state(tmp_path / "a", "done", 100)
    write_state(tmp_path / "b", "running")
    (tmp_path / "b" / "job.log").write_text("model: x\nstep 10 of 40  loss 2.0  0:30 left\nnot a step\n")
    write_state(tmp_path / "c", "failed")
    write_state(tmp_path / "d", "running")
    (tmp_path / "f" / "job.json").write_text(json.dumps({"state": "failed", "since": since - 10, "seconds": None}))
    status = SweepStatus.read(tmp_path, "abcdef", since)
    assert [*status.jobs.values()] == ["done", "running", "failed", "running", "waiting", "waiting"]
    assert status.done_part == {"b": 0.25, "d": 0.0}
    # Of two jobs at once: three quarters, a whole, and two more of a hundred seconds each.
    assert status.seconds_left == pytest.approx((0.75 + 1 + 2) * 100 / 2)
    # Four were seen running, so that the two that are not are about to begin.
    assert SweepStatus.read(tmp_path, "abcdef", since, 4).seconds_left == pytest.approx((0.75 + 1 + 2) * 100 / 4)
    assert status.summary() == "1 of 6 jobs done, 2 running, 1 failed, 2 waiting, about 3 min left"
    assert status.figures["b"].startswith("step 10 of 40")
    assert SweepStatus.read(tmp_path, "e", since).seconds_left is None


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("starting\nerror: a is wrong\nerror: b is wrong\n", "a is wrong; b is wrong"),
        ("Traceback\n  File x\nKeyError: 'x'\n", "KeyError: 'x'"),
        ("", "no output"),
    ],
)
def test_the_message_of_a_failed_job(log, message, tmp_path):
    (tmp_path / "job.log").write_text(log)
    assert failure(tmp_path) == message


def sweep(cwd, *arguments, **options):
    words = [sys.executable, str(SCRIPTS / "train.py"), "--multirun", *arguments]
    return subprocess.Popen(words, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)


def results(folder):
    """Of every job, all figures but those of time, and the weights."""
    found = {}
    for path in sorted(folder.glob("*/metrics.json")):
        figures = json.loads(path.read_text())
        for measured in ("seconds", "tokens_per_second"):
            del figures["train"][measured]
        found[path.parent.name] = figures, (path.parent / "model.safetensors").read_bytes()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["joblib", "submitit_local", "ray"])
def test_two_jobs_at_once_are_as_one_after_the_other(launcher, tiny, tmp_path):
    pytest.importorskip(f"hydra_plugins.hydra_{launcher.split('_')[0]}_launcher")
    common = (*tiny, "model.num_heads=1,2", "seed=1,2", "threads=1")
    assert sweep(tmp_path, *common, "name=one").wait() == 0
    at_once = {"joblib": ["hydra.launcher.n_jobs=2"], "ray": ["hydra.launcher.ray.remote.num_cpus=1"]}.get(launcher, [])
    assert sweep(tmp_path, *common, "name=two", f"hydra/launcher={launcher}", *at_once).wait() == 0
    one, two = (results(tmp_path / "runs" / f"{name}_multi30k") for name in ("one", "two"))
    assert len(one) == 4
    assert one == two


@pytest.mark.slow
def test_a_job_that_is_asked_to_leave_its_machine_resumes_from_the_queue(tiny, tmp_path):
    """As SLURM asks near the end of a job's time; of submitit, the executor on this machine takes its place."""
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    common = (*tiny, "seed=1", "threads=1", "steps=400", "validation.every=400", "checkpoint.every=10")
    completed("train", *common, "hydra.run.dir=whole/run", cwd=tmp_path)
    swept = sweep(tmp_path, *common, "hydra.sweep.subdir=job", "hydra/launcher=submitit_local")
    job = tmp_path / "runs" / "sweep_multi30k" / "job"
    wait_until((job / "checkpoints" / "last.ckpt").exists, process=swept)
    lines = {number: Path(f"/proc/{number}/cmdline").read_bytes() for number in processes_in(tmp_path)}
    (task,) = (number for number, line in lines.items() if b"submitit.core._submit" in line)
    os.kill(task, signal.SIGUSR2)
    assert swept.wait() == 0
    assert "stopped at step" in (job / "train.log").read_text()
    assert [*results(tmp_path / "whole").values()] == [*results(job.parent).values()]
