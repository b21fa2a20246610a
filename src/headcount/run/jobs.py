"""Sweep jobs on disk: the plan of a sweep, the state of each job, and the end of its log.

    runs/NAME/sweep.json        the plan: the command line, and the overrides of each job
    runs/NAME/JOB/job.json      the state of a job and since when; how long it took
    runs/NAME/JOB/job.log       the output of its process

A job is finished when its metrics.json holds the hash of its config (`is_finished`).
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from headcount.errors import InputError
from headcount.files import read_json, require_regular, write_text
from headcount.run.identity import ASIDE
from headcount.run.values import named_by, within

PLAN = "sweep.json"
SWEEP = "HEADCOUNT_SWEEP"  # environment variable: the number of the process of a sweep, for those of its launcher
JOB_LOCK = ".job.lock"  # held by the process of the sweep that a job is a child of
LAST_BYTES = 4096  # of a log, in which its last lines are


@dataclass(frozen=True)
class Plan:
    """The jobs of a sweep as it was last started.

    overrides: its command line. jobs: the overrides of each job, by folder.
    """

    overrides: tuple[str, ...] = ()
    jobs: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class JobState:
    """The state of a job: running, done, failed or stopped; since when (seconds of the system's clock); and how many
    seconds it took, if it is done."""

    state: str
    since: float = 0.0
    seconds: float | None = None


def job_directory(overrides: Collection[str], sweep: str, swept: Collection[str] = ()) -> str:
    """The folder of one job: its overrides as one name, without those that make no other run.

    sweep: the sweep's name, which a study gives it. swept: the settings that have several values; these are always in
    the name.
    """
    given = [(each, *each.partition("=")[::2]) for each in sorted(overrides)]
    own = {"study", "recipe"} if f"study={sweep}" in overrides else set()
    aside = {setting for _, setting, _ in given if setting in own or within(named_by(setting), ASIDE)}
    full = ",".join(each for each, setting, _ in given if setting in swept or setting not in aside) or "as_it_is"
    name = full.replace("/", "_")
    paths = any("/" in value for _, setting, value in given if setting in swept)
    end = name.encode()
    if len(end) <= 200 and not paths:
        return name
    # File systems take 255 bytes, and no path in a name. A digest keeps folders apart; the end of a name, with the
    # seed, tells a reader more than its beginning.
    digest = hashlib.sha256(full.encode()).hexdigest()[:8]
    return f"{digest},{name}" if len(end) <= 200 else f"{digest},...{end[-180:].decode(errors='ignore')}"


def write_plan(sweep: Path, plan: Plan) -> None:
    """Write sweep.json; the folder is made if need be."""
    sweep.mkdir(parents=True, exist_ok=True)
    write_text(sweep / PLAN, json.dumps(asdict(plan), indent=2) + "\n")


def read_plan(sweep: Path) -> Plan:
    """The plan of a sweep, empty where there is none. Raises InputError for a damaged one."""
    path = sweep / PLAN
    if not path.is_file():
        return Plan()
    try:
        plan = read_json(path)
        jobs = {str(name): list(map(str, given or ())) for name, given in plan.get("jobs", {}).items()}
        if paths := [name for name in jobs if "/" in name or name in ("", ".", "..")]:
            raise ValueError(f"{paths[0]!r} is no name of a folder")
        return Plan(tuple(map(str, plan.get("overrides", ()))), jobs)
    except (ValueError, AttributeError, TypeError, OSError) as error:
        raise InputError(
            f"{path}: not the plan of a sweep ({error}); move it away, and start the sweep again"
        ) from error


def is_sweep(directory: Path) -> bool:
    """Whether the directory has the plan of a sweep."""
    return (directory / PLAN).exists()


def begun_jobs(sweep: Path) -> list[str]:
    """The folders of all runs in a sweep's directory, planned or not; a link, such as runs/latest, is no other run."""
    folders = (folder for folder in sweep.iterdir() if not folder.is_symlink())
    return sorted(folder.name for folder in folders if (folder / "config.yaml").is_file())


def write_state(directory: Path, state: str, seconds: float | None = None) -> None:
    """Write job.json: the state of a job from now on."""
    write_text(directory / "job.json", json.dumps(asdict(JobState(state, time.time(), seconds))) + "\n")


def read_state(directory: Path) -> JobState | None:
    """The state in job.json; None where there is none that can be read."""
    try:
        found = read_json(directory / "job.json")
        seconds = found.get("seconds")
        return JobState(
            str(found["state"]), float(found.get("since", 0.0)), None if seconds is None else float(seconds)
        )
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return None


def log_path(directory: Path) -> Path:
    """The file for the output of a job's process."""
    return directory / "job.log"


def last_lines(path: Path) -> list[str]:
    """The last lines of a log that are not empty; none where there is no log."""
    try:
        require_regular(path)
        with path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LAST_BYTES))
            text = log.read().decode(errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()]


def progress_of(directory: Path) -> tuple[str, float]:
    """The last progress line of a running job, and the share of its steps that is done, 0 to 1."""
    lines = [line.strip() for line in last_lines(log_path(directory)) if line.startswith("step ")]
    steps = re.match(r"step (\d+) of (\d+)", lines[-1]) if lines else None
    return lines[-1] if lines else "starting", int(steps[1]) / int(steps[2]) if steps else 0.0


def failure(directory: Path) -> str:
    """The error messages of a job that failed, or the last line of its traceback."""
    return "; ".join(each.removeprefix("error: ") for each in _complaints(log_path(directory)))


def _complaints(log: Path) -> list[str]:
    """The error messages at the end of a log, each once; its last line if it has none."""
    lines = last_lines(log) or ["no output"]
    return list(dict.fromkeys(line for line in lines if line.startswith("error: "))) or [lines[-1].strip()]


def _killed(directory: Path) -> bool:
    """Whether the process of a job that is said to be running is gone, which would hold its lock."""
    if not (directory / JOB_LOCK).is_file():
        return False  # as in a copy: nothing is known
    try:
        with FileLock(directory / JOB_LOCK, blocking=False):
            return True
    except (Timeout, OSError):  # held, or not ours to open
        return False


def why_unfinished(directory: Path) -> str:
    """The state of a job that is not finished, and its error messages, the last line of its log, or its progress."""
    if not directory.is_dir():
        return "not begun"
    known = read_state(directory)
    if known and known.state == "running" and _killed(directory):
        return f"killed: {progress_of(directory)[0]} ({log_path(directory)}); the sweep's command goes on with it"
    if known and known.state == "running":
        return f"running: {progress_of(directory)[0]} ({log_path(directory)})"
    state = f"{known.state}: " if known else ""
    for path in (log_path(directory), directory / "train.log"):
        if path.is_file():
            return f"{state}{'; '.join(_complaints(path))} ({path})"
    return f"{state}begun, and not finished"
