"""Sweep: a Hydra multirun, each job of it a run in a process of its own.

All that is known of a job is in its folder (`headcount.run.jobs`), so a sweep can be stopped or killed, and started
again.
"""

import contextlib
import itertools
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from headcount.errors import InputError
from headcount.files import show
from headcount.machine import END_WITH_PARENT, cores, end_with_parent, visible_gpus
from headcount.run.again import check_same
from headcount.run.directory import is_finished
from headcount.run.jobs import JOB_LOCK, SWEEP, failure, log_path, read_plan, write_state
from headcount.run.place import quoted
from headcount.run.resume import GIVEN_AGAIN, TEXTS, checkpoints
from headcount.run.values import named_by, within
from headcount.signals import STOP, signals_to

START = ("-m", "headcount", "train")  # of Python, for a job
LAUNCHERS = ("RANK", "WORLD_SIZE", "MASTER_", "GROUP_", "ROLE_", "TORCHELASTIC_", "TORCH_NCCL_", "PL_", "SLURM_NTASKS")
# At which submitit, on SLURM too, puts a job back into the queue and ends it; elsewhere than on Unix there is none.
REQUEUE = getattr(signal, "SIGUSR2", signal.SIGTERM)
# Settings of torchrun: signals that it hands on, and the seconds in which its processes save and end.
TORCHRUN = {
    "PET_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1,SIGUSR2",
    "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "110",
}
# Exit codes of a run that was asked to stop, also while it was scored.
STOPPED = (*(128 + number for number in STOP), *(-number for number in STOP))


def run_job(config: DictConfig, directory: Path) -> None:
    """Train the run of `config` in `directory`, in a child process, unless it is finished.

    A job that was stopped resumes from its last checkpoint. The child has an environment of its own, so nothing of this
    process or of another job reaches it; its output goes to `job.log`. Another process with the same job waits until it
    has ended.

    Raises InputError if the training fails or is stopped, or the folder holds a run of another config; SystemExit
    when this process is asked to stop, after the child has stopped. A job of submitit that is asked to go back into the
    queue does so then.
    """
    end_with_sweep()
    with FileLock(directory / JOB_LOCK):
        with FileLock(directory / ".lock"):  # a sweep that was killed may have left a child behind: let it finish
            if (directory / "config.yaml").exists():
                check_same(directory, config, "move it away, or give the sweep another name=...")
        if is_finished(directory):
            return
        resume = bool(checkpoints(directory))
        if not resume:
            (directory / "config.yaml").unlink(missing_ok=True)  # of a run that ended before its first checkpoint
        threads = config.threads or threads_of_a_process(directory.parent, config.trainer.devices)
        command = command_of_a_job(config, directory, resume) + ([f"threads={threads}"] if threads else [])
        with gpus_of_a_job(directory.parent, config.trainer.devices) as gpus:
            environment = environment_of_a_job(threads, gpus)
            # A signal that comes before the child is another program is lost, so it looks for its parent itself.
            environment[END_WITH_PARENT] = "0" if "torch.distributed.run" in command else str(os.getpid())
            train_in_child(command, directory, environment)


def train_in_child(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> None:
    """Run the process of one job to its end. Raises InputError or SystemExit, see `run_job`."""
    begin, requeue = time.time(), signal.getsignal(REQUEUE)
    write_state(directory, "running")
    with log_path(directory).open("wb") as log, forwarded_signals() as (children, signals):
        children.append(begin_child(command, log, environment))
        for number in signals[-1:]:  # it came while the child began
            children[0].send_signal(number)
        code = children[0].wait()
    if signals or code in STOPPED:
        write_state(directory, "stopped")
        if signals:
            end_with_sweep()
            if REQUEUE in signals and callable(requeue):  # submitit's own
                requeue(REQUEUE, None)
            raise SystemExit(128 + signals[-1])
        raise InputError("stopped; the same command resumes it")
    if code or not is_finished(directory):
        write_state(directory, "failed")
        raise InputError(f"{failure(directory)}; see {show(log_path(directory))}")
    write_state(directory, "done", seconds=time.time() - begin)


def begin_child(command: Sequence[str], log: IO[bytes], environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start a process that ends with this one, whichever way that ends."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=environment,
        cwd=HydraConfig.get().runtime.cwd,
        start_new_session=True,  # a signal to a group of processes would reach it twice, and the second one kills
        preexec_fn=partial(end_with_parent, os.getpid()),
    )


def end_with_sweep() -> None:
    """Let this process end with that of the sweep, if joblib's launcher has started it for several jobs; at once where
    the sweep has ended already, since the launcher would go on to the next job."""
    sweep = int(os.environ.get(SWEEP, os.getpid()))
    if "n_jobs" in HydraConfig.get().launcher and sweep != os.getpid():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # also one that comes soon after another, see `signals_to`
        try:
            end_with_parent(sweep)
        except SystemExit:
            os._exit(128 + signal.SIGTERM)


def command_of_a_job(config: DictConfig, directory: Path, resume: bool) -> list[str]:
    """The command line of one job; a resumed one gets the settings of `GIVEN_AGAIN`."""
    place = quoted(str(directory.resolve()))
    devices = config.trainer.devices
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(devices)]
    start = [sys.executable, *(launch if isinstance(devices, int) and devices > 1 else []), *START, *own_configs()]
    task = list(HydraConfig.get().overrides.task)
    if resume:
        again = [each for each in task if within(named_by(each), GIVEN_AGAIN)]
        # The default corpus of conf/ may lack these settings: ++ adds them.
        again = ["++" + each.lstrip("+") if named_by(each) in TEXTS else each for each in again]
        return [*start, f"resume={place}", *again]
    return [*start, *task, f"hydra.run.dir={place}"]


def own_configs() -> list[str]:
    """The --config-dir of the sweep, if it has one."""
    sources = HydraConfig.get().runtime.config_sources
    return [f"--config-dir={source.path}" for source in sources if source.provider == "command-line"]


def jobs_at_once(sweep: Path) -> int | None:
    """The most jobs that joblib's launcher runs at the same time; None for another launcher."""
    launcher = HydraConfig.get().launcher
    if "n_jobs" not in launcher:
        return None
    at_once = launcher.n_jobs if launcher.n_jobs > 0 else cores() + 1 + launcher.n_jobs  # -1 is a job a core
    return max(1, min(at_once, len(read_plan(sweep).jobs) or 1))


def threads_of_a_process(sweep: Path, devices: Any) -> int | None:
    """Processor cores for each process of a job, which has one a device; None to leave it to torch."""
    threads = threads_of_a_job(sweep)
    return max(1, threads // devices) if threads and isinstance(devices, int) and devices > 1 else threads


def threads_of_a_job(sweep: Path) -> int | None:
    """Processor cores for each of the jobs that the launcher runs at once; None to leave it to torch."""
    launcher = HydraConfig.get().launcher
    # Of a cluster: SLURM's, or Ray's.
    if given := launcher.get("cpus_per_task") or OmegaConf.select(launcher, "ray.remote.num_cpus"):
        return max(1, int(given))
    at_once = jobs_at_once(sweep)
    return max(1, cores() // at_once) if at_once else None


def environment_of_a_job(threads: int | None, gpus: Sequence[str] = ()) -> dict[str, str]:
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
    taken_names: list[str] = []
    for place, name in itertools.product(range(places), names):
        if len(taken_names) < needed and name not in taken_names:
            with contextlib.suppress(Timeout):
                taken.enter_context(FileLock(sweep / f".gpu-{name}-{place}.lock", blocking=False))
                taken_names.append(name)
    return taken_names


@contextlib.contextmanager
def forwarded_signals() -> Iterator[tuple[list["subprocess.Popen[bytes]"], list[int]]]:
    """While it is open, the signals to stop go to the processes in the first list that it gives, and not to this one;
    the second list has the signals that came. See `signals_to`."""
    children: list[subprocess.Popen[bytes]] = []
    signals: list[int] = []

    def forward(number: int) -> None:
        signals.append(number)
        for child in children:
            child.send_signal(number)

    with signals_to(forward):
        yield children, signals
