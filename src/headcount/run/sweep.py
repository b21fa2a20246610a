"""Sweep: a Hydra multirun, each job of it a run in a process of its own.

    runs/NAME/sweep.json        the plan: the command line, and the overrides of each job
    runs/NAME/JOB/job.log       the output of a job's process

A job is finished when its metrics.json holds the hash of its config (`is_finished`), so a sweep can be stopped or
killed and typed again: it does what is missing. The launcher here starts the jobs from threads of one process; the
plugins of Hydra for SLURM and Ray start `run_job` on other machines.
"""

import contextlib
import glob
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from itertools import takewhile
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from filelock import FileLock
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from headcount.command_lines import command, quoted
from headcount.errors import InputError
from headcount.files import show, write_text
from headcount.processes import cores, end_with_parent
from headcount.run.directory import is_finished
from headcount.signals import signals_to

PLAN = "sweep.json"
LOG = "job.log"
LAUNCHERS = ("RANK", "WORLD_SIZE", "MASTER_", "GROUP_", "ROLE_", "TORCHELASTIC_", "TORCH_NCCL_", "PL_", "SLURM_NTASKS")
REQUEUE = signal.SIGUSR2  # at which submitit, on SLURM too, puts a job back into the queue and ends it
# Settings of torchrun: signals that it hands on, and the seconds in which its processes save and end.
TORCHRUN = {
    "PET_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1,SIGUSR2",
    "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "110",
}


def read_plan(sweep: Path) -> dict[str, list[str]]:
    """The overrides of each job of a sweep as it was last started, by folder; empty without a plan. Raises InputError
    for a damaged one."""
    path = sweep / PLAN
    try:
        jobs: dict[str, list[str]] = json.loads(path.read_bytes())["jobs"] if path.is_file() else {}
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise InputError(
            f"{path}: not the plan of a sweep ({error}); move it away, and start the sweep again"
        ) from error
    return jobs


def begun_jobs(sweep: Path) -> list[str]:
    """The folders of all runs in a sweep's directory, planned or not; a link, such as runs/latest, is no other run."""
    folders = (folder for folder in sweep.iterdir() if not folder.is_symlink())
    return sorted(folder.name for folder in folders if (folder / "config.yaml").is_file())


def why_unfinished(directory: Path) -> str:
    """Why a job is not finished: the error messages in its log, or the last line of it."""
    if not directory.is_dir():
        return "not begun"
    log = directory / LOG
    with contextlib.suppress(OSError):
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
        errors = dict.fromkeys(line.removeprefix("error: ") for line in lines if line.startswith("error: "))
        return f"{'; '.join(errors) or (lines or ['no output'])[-1]} ({show(log)})"
    return "begun, and not finished"


class ProcessLauncher(Launcher):
    """Runs the jobs of a sweep on this machine, `n_jobs` at once (-1: one a GPU, or one a core where there is none),
    each in a process of its own. Several GPUs are dealt out in turn. A job that fails stops no other.
    """

    def __init__(self, n_jobs: int) -> None:
        self.n_jobs = n_jobs

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.context, self.config = hydra_context, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs. Raises SystemExit with code 2 if one is not done, and with 128 + the number of a signal."""
        jobs = self._composed(job_overrides, initial_job_idx)
        sweep = Path(self.config.hydra.sweep.dir)
        sweep.mkdir(parents=True, exist_ok=True)
        plan = {path.name: list(each.hydra.overrides.task) for path, each in jobs.items()}
        write_text(sweep / PLAN, json.dumps({"jobs": plan}, indent=2) + "\n")
        at_once = self.n_jobs if self.n_jobs > 0 else (len(visible_gpus()) or cores()) + 1 + self.n_jobs
        failed, signals = self._run(jobs, max(1, min(at_once, len(jobs))))
        done = sum(map(is_finished, jobs))
        lines = [f"sweep {show(sweep)}: {done} of {len(jobs)} jobs done", *failed]
        if done < len(jobs):
            lines.append("the same command again does what is missing")
        if done:
            lines.append(f"next:  {command('report', sweep=show(sweep))}")
        sys.stdout.write("\n".join(lines) + "\n")
        if signals:
            raise SystemExit(128 + signals[-1])
        if self.config.report and done:
            write_report = [sys.executable, "-m", "headcount", "report", f"sweep={quoted(str(sweep))}"]
            subprocess.run(write_report, check=False)
        if failed:
            raise SystemExit(2)
        return []

    def _run(self, jobs: Mapping[Path, DictConfig], at_once: int) -> tuple[list[str], list[int]]:
        """Run the jobs that are not finished, in threads, with a line on standard error for each that ends; a line for
        each that failed, and the signals that came. A signal ends the sweep once the jobs that run have stopped."""
        missing = [path for path in jobs if not is_finished(path)]
        names, gpus, places, failed = short_names(jobs), visible_gpus(), SimpleQueue[int](), list[str]()
        begun = time.monotonic()
        for place in range(at_once):
            places.put(place)

        def say(what: str, left: int) -> None:
            seconds = (time.monotonic() - begun) / max(1, len(missing) - left) * left
            time_left = f", about {max(1, round(seconds / 60))} min left" if 0 < left < len(missing) else ""
            done = f"{len(jobs) - left - len(failed)} of {len(jobs)} jobs done{time_left}"
            sys.stderr.write(f"sweep {show(Path(self.config.hydra.sweep.dir))}: {what}{done}\n")

        with forwarded_signals() as (children, signals), ThreadPoolExecutor(at_once) as threads:

            def work(path: Path) -> None:
                place = places.get()
                try:
                    own = gpus_of(place, jobs[path].trainer.devices, gpus)
                    environment = environment_of_a_job(threads_of(jobs[path], at_once), own)
                    run_process(command_of_a_job(jobs[path], path), path, environment, children, signals)
                finally:
                    places.put(place)

            running = {threads.submit(work, path): path for path in missing}
            say("", len(missing))
            for number, each in enumerate(as_completed(running), 1):
                path, error = running[each], each.exception()
                if error is not None and not isinstance(error, OSError):
                    raise error
                if state := "" if is_finished(path) else "stopped" if signals else "failed":
                    why = state if signals else error or why_unfinished(path)
                    failed.append(f"not done: {names[path]}: {why}")
                say(f"{state or 'done'}: {names[path]}; ", len(missing) - number)
        return failed, signals

    def _composed(self, job_overrides: Sequence[Sequence[str]], first: int) -> dict[Path, DictConfig]:
        """The config of each job by its folder. Raises InputError for two jobs of one folder, or a folder that holds a
        finished run of another config."""
        jobs: dict[Path, DictConfig] = {}
        for number, overrides in enumerate(job_overrides, first):
            config = self.context.config_loader.load_sweep_config(self.config, list(overrides))
            with open_dict(config):
                config.hydra.job.id, config.hydra.job.num = f"job_{number}", number
            path = Path(config.hydra.sweep.dir) / config.hydra.sweep.subdir
            if path in jobs:
                raise InputError(f"{show(path)}: two jobs have this folder; leave out equal ones")
            jobs[path] = config
            if is_finished(path):
                check_finished(config, path)
        return jobs


def check_finished(config: DictConfig, directory: Path) -> None:
    """Raises InputError where a finished job is a run of another config."""
    from headcount.run.build import load_extensions  # here: they import torch, which a new sweep does not need
    from headcount.run.resume import check_same

    load_extensions(config)
    HydraConfig.instance().set_config(config)
    own = config.copy()
    OmegaConf.set_struct(own, False)
    own.pop("hydra")
    check_same(directory, own, "move it away, or give the sweep another name=...")


def short_names(jobs: Mapping[Path, DictConfig]) -> dict[Path, str]:
    """A name for each job: the overrides that not all jobs have. The name of its folder has more, and may be long."""
    words = {path: list(config.hydra.overrides.task) for path, config in jobs.items()}
    common = set.intersection(*map(set, words.values()))
    return {path: ",".join(each for each in own if each not in common) or path.name for path, own in words.items()}


def run_job(config: DictConfig, directory: Path) -> None:
    """The job of a sweep that a plugin of Hydra started, on this machine or another: train it in a child process.

    Raises InputError if the training fails or is stopped; SystemExit when this process is asked to stop, after the
    child has stopped. A job of submitit that is asked to go back into the queue does so then.
    """
    whole: Any = OmegaConf.merge(config, {"hydra": HydraConfig.get()})
    if is_finished(directory):
        check_finished(whole, directory)
        return
    launcher = HydraConfig.get().launcher
    given = launcher.get("cpus_per_task") or OmegaConf.select(launcher, "ray.remote.num_cpus")
    environment = environment_of_a_job(int(given) if given else None, ())
    requeue = signal.getsignal(REQUEUE)
    words = command_of_a_job(whole, directory)
    with forwarded_signals() as (children, signals):
        run_process(words, directory, environment, children, signals)
    if signals:
        if REQUEUE in signals and callable(requeue):  # submitit's own
            requeue(REQUEUE, None)
        raise SystemExit(128 + signals[-1])
    if not is_finished(directory):
        raise InputError(why_unfinished(directory))


def run_process(
    words: Sequence[str],
    directory: Path,
    environment: Mapping[str, str],
    children: "list[subprocess.Popen[bytes]]",
    signals: Sequence[int],
) -> None:
    """Run the process of one job to its end; it ends with this one, whichever way that ends. Another process with the
    same job waits until it has ended. children, signals: see `forwarded_signals`."""
    directory.mkdir(parents=True, exist_ok=True)
    with FileLock(directory / ".job.lock"), (directory / LOG).open("wb") as log:
        if is_finished(directory) or signals:
            return
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,  # a signal to a group of processes would reach it twice, and the second one kills
            preexec_fn=partial(end_with_parent, os.getpid()),
        )
        children.append(child)
        if signals:  # one came since
            child.send_signal(signals[-1])
        child.wait()
        children.remove(child)


def command_of_a_job(config: DictConfig, directory: Path) -> list[str]:
    """The command line of one job: it begins the run of its folder, or continues it."""
    devices = config.trainer.devices
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(devices)]
    own = [
        f"--config-dir={each.path}" for each in config.hydra.runtime.config_sources if each.provider == "command-line"
    ]
    start = [sys.executable, *(launch if isinstance(devices, int) and devices > 1 else []), "-m", "headcount", "train"]
    place = f"hydra.run.dir={quoted(str(directory.resolve()))}"
    return [*start, *own, *config.hydra.overrides.task, place, "resume=auto"]


def threads_of(config: DictConfig, at_once: int) -> int:
    """Processor cores for each process of a job, which has one a device."""
    devices = config.trainer.devices if isinstance(config.trainer.devices, int) else 1
    return config.threads or max(1, cores() // at_once // max(1, devices))


def gpus_of(place: int, devices: Any, names: Sequence[str]) -> list[str]:
    """The GPUs of the job at a place among those that run at once; none where there is no choice."""
    if len(names) < 2:
        return []
    needed = min(devices, len(names)) if isinstance(devices, int) else 1
    return [names[(place * needed + number) % len(names)] for number in range(needed)]


def visible_gpus() -> list[str]:
    """Names of the GPUs that a process started now would see: those before the first -1."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    if names is None:
        return [path.removeprefix("/dev/nvidia") for path in sorted(glob.glob("/dev/nvidia[0-9]*"))]
    return list(takewhile(lambda name: name not in ("", "-1"), map(str.strip, names.split(","))))


def environment_of_a_job(threads: int | None, gpus: Collection[str]) -> dict[str, str]:
    """This process's environment without the variables of launchers, and with the GPUs of the job, if it has any."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    environment |= TORCHRUN
    environment["PYTHONSAFEPATH"] = "1"  # no file of the current directory is imported in place of a library's
    if threads:
        environment["OMP_NUM_THREADS"] = str(threads)
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    return environment


@contextlib.contextmanager
def forwarded_signals() -> Iterator[tuple["list[subprocess.Popen[bytes]]", list[int]]]:
    """While it is open, the signals to stop go to the processes in the first list that it gives, and not to this one;
    the second list has the signals that came. See `signals_to`."""
    children: list[subprocess.Popen[bytes]] = []
    signals: list[int] = []

    def forward(number: int) -> None:
        signals.append(number)
        for child in list(children):
            child.send_signal(number)
        if len(signals) > 2:  # a cluster may send one twice
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    with signals_to(forward):
        yield children, signals
