"""A sweep: a Hydra multirun, each job of it a training in a process of its own.

A job's folder tells how it stands: finished when `metrics.json` holds the hash of its config, otherwise by `job.json`.
So a sweep can be stopped, killed, started again and looked at from elsewhere.
"""

import atexit
import contextlib
import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.live import Live
from rich.table import Table

from headcount.errors import InputError
from headcount.files import show, write_text
from headcount.machine import END_WITH_PARENT, cores, visible_gpus
from headcount.run.directory import is_finished, read_config
from headcount.run.identity import differences, with_text
from headcount.run.resume import TEXTS, initial_config

SCRIPT = Path(__file__).parents[3] / "scripts" / "train.py"
LAUNCHERS = ("RANK", "WORLD_SIZE", "MASTER_", "GROUP_", "ROLE_", "TORCHELASTIC_", "TORCH_NCCL_", "PL_", "SLURM_NTASKS")
STOPPED = (130, 143, -signal.SIGINT, -signal.SIGTERM)  # how a training ends that was asked to, also while it is scored
# What a job is told again when it goes on: where the text lies now, and how much of the machine to use.
TOLD_AGAIN = ("trust", "debug", "data.directory", "data.workers", "checkpoint.every", "logger", *TEXTS)
LINES = 4096  # bytes at the end of a log in which its last lines are


def run_job(config: DictConfig, directory: Path) -> None:
    """Train what `config` says into `directory`, in a child process, unless that has been done already.

    A job that was stopped goes on from its last checkpoint. The child has an environment of its own, so nothing of this
    process or of another job reaches it; what it says goes to `job.log`. Whoever else has the same job waits until it
    has ended.

    Raises InputError if the training fails or is stopped, or the folder holds a run of another config; SystemExit
    when this process is asked to stop, after the child has stopped.
    """
    with FileLock(directory / ".job.lock"):
        with FileLock(directory / ".lock"):  # whoever was killed may have left a training behind: let it finish
            begun = read_config(directory) if (directory / "config.yaml").exists() else None
        task = initial_config(config, Path(config.init_from)) if config.init_from else config
        if begun is not None and (what := differences(begun, with_text(task))):
            raise InputError(
                f"{show(directory)} holds a run of another config ({what}); move it away, or give the sweep another "
                "name=..."
            )
        if is_finished(directory):
            return
        resume = (directory / "checkpoints" / "last.ckpt").exists()
        if not resume:
            (directory / "config.yaml").unlink(missing_ok=True)  # of a training that died before it had learnt anything
        threads = config.threads or threads_of_a_job(directory.parent)
        command = command_of_a_job(config, directory, resume) + ([f"threads={threads}"] if threads else [])
        with gpus_of_a_job(directory.parent, config.trainer.devices) as gpus:
            train_in_child(command, directory, environment_of_a_job(threads, gpus))


def train_in_child(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> None:
    """Run the training of one job to its end. Raises InputError or SystemExit, see `run_job`."""
    begin = time.time()
    note(directory, "running")
    with (directory / "job.log").open("wb") as log, forwarded_signals() as children:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            cwd=HydraConfig.get().runtime.cwd,
            start_new_session=True,  # a signal to a group of processes would reach it twice, and the second one kills
        )
        children.append(child)
        code = child.wait()
    if children.signal or code in STOPPED:
        note(directory, "stopped")
        if children.signal:
            raise SystemExit(128 + children.signal)
        raise InputError("stopped; the same command goes on with it")
    if code or not is_finished(directory):
        note(directory, "failed")
        raise InputError(f"{failure(directory)}; see {show(directory / 'job.log')}")
    note(directory, "done", seconds=time.time() - begin)


def command_of_a_job(config: DictConfig, directory: Path, resume: bool) -> list[str]:
    """What to type for the training of one job; one that goes on is told again what its config does not settle."""
    quoted = "'" + str(directory.resolve()).replace("\\", "\\\\").replace("'", "\\'") + "'"
    devices = config.trainer.devices
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(devices)]
    start = [sys.executable, *(launch if isinstance(devices, int) and devices > 1 else []), str(SCRIPT)]
    task = list(HydraConfig.get().overrides.task)
    if resume:
        # The corpus is not chosen again, and Hydra's default has no such places: ++ adds them.
        told = ["++" + each.lstrip("+") if _setting(each) in TEXTS else each for each in task if _is_told_again(each)]
        return [*start, f"resume={quoted}", *told]
    return [*start, *task, f"hydra.run.dir={quoted}"]


def _is_told_again(override: str) -> bool:
    return _setting(override) in TOLD_AGAIN or _setting(override).startswith("logger.")


def _setting(override: str) -> str:
    return override.partition("=")[0].lstrip("+~")


def jobs_at_once(sweep: Path) -> int | None:
    """The most jobs that joblib's launcher runs at the same time; None for another launcher."""
    launcher = HydraConfig.get().launcher
    if "n_jobs" not in launcher:
        return None
    at_once = launcher.n_jobs if launcher.n_jobs > 0 else cores() + 1 + launcher.n_jobs  # -1 is a job a core
    return max(1, min(at_once, len(planned(sweep)) or 1))


def threads_of_a_job(sweep: Path) -> int | None:
    """Processor cores for each of the jobs that the launcher runs at once; None to leave it to torch."""
    launcher = HydraConfig.get().launcher
    if launcher.get("cpus_per_task"):  # a cluster's
        return int(launcher.cpus_per_task)
    at_once = jobs_at_once(sweep)
    return max(1, cores() // at_once) if at_once else None


def environment_of_a_job(threads: int | None, gpus: Sequence[str] = ()) -> dict[str, str]:
    """This process's environment less what launchers leave there, with the GPUs of the job, if it has some."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    environment[END_WITH_PARENT] = "1"
    if threads:
        environment["OMP_NUM_THREADS"] = str(threads)
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    return environment


@contextlib.contextmanager
def gpus_of_a_job(sweep: Path, devices: int) -> Iterator[list[str]]:
    """The GPUs for a job that needs `devices` of them, where several jobs run at once on a machine with several GPUs.

    Each GPU has as many places as are needed for all jobs at once. A place is a locked file in the sweep's folder: the
    job takes free ones, on GPUs that the fewest have, and leaves them when it ends.
    """
    names, at_once = visible_gpus(), jobs_at_once(sweep)
    if at_once is None or len(names) < 2:
        yield []
        return
    needed = min(devices, len(names)) if isinstance(devices, int) else 1
    places = math.ceil(at_once * needed / len(names))
    with contextlib.ExitStack() as taken:
        while len(gpus := _take_places(sweep, names, needed, places, taken)) < needed:
            taken.close()  # others may wait for just these
            time.sleep(1)
        yield gpus


def _take_places(sweep: Path, names: list[str], needed: int, places: int, taken: contextlib.ExitStack) -> list[str]:
    found: list[str] = []
    for place, name in itertools.product(range(places), names):
        if len(found) < needed and name not in found:
            with contextlib.suppress(Timeout):
                taken.enter_context(FileLock(sweep / f".gpu-{name}-{place}.lock", blocking=False))
                found.append(name)
    return found


class Children(list["subprocess.Popen[bytes]"]):
    """Processes to which a signal is passed on. signal: the last one that came, 0 if none did."""

    signal = 0


@contextlib.contextmanager
def forwarded_signals() -> Iterator[Children]:
    """While it is open, Ctrl-C and SIGTERM go to the processes in the list that it gives, and not to this one.

    Elsewhere than in the main thread, which alone gets signals, it does nothing.
    """
    children = Children()

    def forward(number: int, frame: object) -> None:
        children.signal = number
        for child in children:
            child.send_signal(number)

    if threading.current_thread() is not threading.main_thread():
        yield children
        return
    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield children
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def note(directory: Path, state: str, seconds: float | None = None) -> None:
    """Keep how a job stands since now, for whoever looks; `seconds` is how long it took."""
    write_text(directory / "job.json", json.dumps({"state": state, "since": time.time(), "seconds": seconds}) + "\n")


def noted(directory: Path) -> dict[str, Any]:
    """What `note` kept; empty if nothing."""
    try:
        found: dict[str, Any] = json.loads((directory / "job.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = {}
    return found


def planned(sweep: Path) -> dict[str, list[str]]:
    """The jobs of a sweep as it was last started, by folder: their overrides. Empty where nobody wrote them down."""
    path = sweep / "sweep.json"
    jobs: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8"))["jobs"] if path.exists() else {}
    return jobs


def last_lines(path: Path) -> list[str]:
    """What a log says last: some lines, fewer where it is short."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LINES))
            text = log.read().decode(errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()]


def failure(directory: Path) -> str:
    """What a job that failed says of it: its complaints, or the end of a traceback."""
    lines = last_lines(directory / "job.log") or ["it said nothing"]
    complaints = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return "; ".join(dict.fromkeys(complaints)) or lines[-1].strip()


@dataclass
class Standing:
    """How a sweep stands.

    jobs: state by job: waiting, running, done, failed or stopped. figures: what each running job said last.
    done_part: of each running job, 0 to 1. seconds: what each job took that was done since this start. at_once: the
    most jobs that were seen running; between two of them there is one less.
    """

    jobs: dict[str, str]
    figures: dict[str, str]
    done_part: dict[str, float]
    elapsed: dict[str, float]
    seconds: list[float]
    at_once: int = 0

    @classmethod
    def look(cls, sweep: Path, jobs: Iterable[str], since: float, at_once: int = 0) -> "Standing":
        """At the folders of `jobs`. What was running before `since` is not any more."""
        standing = cls({}, {}, {}, {}, [])
        for job in jobs:
            news = noted(sweep / job)
            state = news.get("state", "waiting")
            if state != "done" and is_finished(sweep / job):
                state = "done"  # of itself, or left behind by a sweep that was killed
            elif state not in ("done", "waiting") and news["since"] < since:
                state = "waiting"
            standing.jobs[job] = state
            if state == "running":
                lines = [line for line in last_lines(sweep / job / "job.log") if line.startswith("step ")]
                found = re.match(r"step (\d+) of (\d+)", lines[-1]) if lines else None
                standing.figures[job] = lines[-1].strip() if lines else "starting"
                standing.done_part[job] = int(found[1]) / int(found[2]) if found else 0.0
                standing.elapsed[job] = time.time() - news["since"]
            elif state == "done" and news.get("seconds") and news["since"] >= since:
                standing.seconds.append(news["seconds"])
        standing.at_once = max(at_once, len(standing.done_part))
        return standing

    @property
    def seconds_left(self) -> float | None:
        """How long it will take, if jobs take as long as those so far; None while nobody can tell."""
        known = self.seconds or [self.elapsed[job] / part for job, part in self.done_part.items() if part > 0]
        if not known or not self.done_part:
            return None
        waiting = Counter(self.jobs.values())["waiting"]
        jobs = waiting + sum(1 - part for part in self.done_part.values())
        return jobs * sum(known) / len(known) / min(self.at_once, waiting + len(self.done_part))

    def summary(self) -> str:
        """One line."""
        counts = Counter(self.jobs.values())
        states = [f"{counts[state]} {state}" for state in ("running", "failed", "stopped", "waiting") if counts[state]]
        left = self.seconds_left
        time_left = [f"about {max(1, round(left / 60))} min left"] if left is not None else []
        return ", ".join([f"{counts['done']} of {len(self.jobs)} jobs done", *states, *time_left])

    def table(self, names: Mapping[str, str]) -> Table:
        """A line a job that is running, failed or stopped, under its name, and the summary."""
        table = Table.grid(padding=(0, 2))
        for job, state in self.jobs.items():
            if state in ("running", "failed", "stopped"):
                table.add_row(state, names[job], self.figures.get(job, ""))
        table.caption = self.summary()
        table.caption_justify = "left"
        return table


class SweepView(Callback):
    """Writes down what a sweep will do, shows how it stands, and says at the end what to type next.

    For a person a table that renews itself, for a log a line at each change. When jobs failed or were stopped, the
    process ends with exit code 2.
    """

    def __init__(self) -> None:
        self.over = threading.Event()
        self.thread: threading.Thread | None = None
        self.sweep = Path()
        self.jobs: dict[str, str] = {}  # by folder: what tells it from the others
        self.since = 0.0
        self.at_once = 0

    def __getstate__(self) -> dict[str, Any]:
        return {}  # a launcher sends us to the processes of its jobs, where there is nothing to show

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Write `sweep.json`, and begin to look. What cannot be composed, the sweeper will complain of."""
        self.sweep, self.since = Path(config.hydra.sweep.dir), time.time()
        command_line = list(config.hydra.overrides.task)
        params = [f"{key}={value}" for key, value in (config.hydra.sweeper.get("params") or {}).items()]
        loader = GlobalHydra.instance().config_loader()
        _ = config.hydra.sweep.subdir  # asks once which settings are swept, for the names of all jobs
        jobs: dict[str, list[str]] = {}
        try:
            parsed = OverridesParser.create(loader).parse_overrides([*params, *command_line])
            for overrides in itertools.chain.from_iterable(BasicSweeper.split_arguments(parsed, None)):
                jobs[loader.load_sweep_config(config, overrides).hydra.sweep.subdir] = overrides
        except (HydraException, OmegaConfBaseException):
            return
        common = set.intersection(*map(set, jobs.values()))
        own = {job: [each for each in overrides if each not in common] for job, overrides in jobs.items()}
        self.jobs = {job: ",".join(overrides) or job for job, overrides in own.items()}
        self.sweep.mkdir(parents=True, exist_ok=True)
        write_text(self.sweep / "sweep.json", json.dumps({"overrides": command_line, "jobs": jobs}, indent=2) + "\n")
        self.thread = threading.Thread(target=self.show, daemon=True)
        self.thread.start()
        atexit.register(self.close)  # Hydra says nothing of a sweep that was interrupted

    def show(self) -> None:
        """Until the sweep is over."""
        console = Console(stderr=True)
        if sys.stderr.isatty():
            with Live(console=console, transient=True, auto_refresh=False) as live:
                while not self.over.wait(1):
                    live.update(self.look().table(self.jobs), refresh=True)
            return
        said: dict[str, str] = {}
        while not self.over.wait(1):
            standing = self.look()
            if standing.jobs != said:
                said = standing.jobs
                sys.stderr.write(f"sweep {show(self.sweep)}: {standing.summary()}\n")

    def look(self) -> Standing:
        standing = Standing.look(self.sweep, self.jobs, self.since, self.at_once)
        self.at_once = standing.at_once
        return standing

    def close(self) -> None:
        """Stop looking, and say how it stands, once."""
        if self.thread is None:
            return
        self.over.set()
        self.thread.join()
        self.thread = None
        atexit.unregister(self.close)
        standing, place = self.look(), show(self.sweep)
        lines = [f"sweep {place}: {standing.summary()}"]
        for job, state in standing.jobs.items():
            if state == "failed":
                lines.append(f"failed: {self.jobs[job]}: {failure(self.sweep / job)}")
        if set(standing.jobs.values()) != {"done"}:
            lines.append("the same command again does what is missing")
        lines.append(f"next:  python scripts/report.py sweep={place}")
        sys.stdout.write("\n".join(lines) + "\n")

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Say how it went. Raises SystemExit if not all is done."""
        self.close()
        if self.jobs and set(self.look().jobs.values()) != {"done"}:
            sys.exit(2)
