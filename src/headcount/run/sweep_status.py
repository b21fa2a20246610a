"""Sweep status: how many jobs are done, and how long the rest will take, shown while a sweep runs."""

import atexit
import itertools
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.live import Live
from rich.table import Table

from headcount.files import show
from headcount.run.directory import is_finished
from headcount.run.jobs import SWEEP, Plan, failure, progress_of, read_state, write_plan
from headcount.run.place import command, quoted
from headcount.run.values import named_by


@dataclass
class SweepStatus:
    """The state of every job of a sweep at one moment.

    jobs: state by job: waiting, running, done, failed or stopped. Of each running job, figures: its last progress line;
    done_part: the share of its steps that is done, 0 to 1; elapsed: seconds since it began. seconds: how long each job
    took that was done since this start. at_once: the most jobs running at the same time so far; between the end of one
    and the start of the next there is one less.
    """

    jobs: dict[str, str]
    figures: dict[str, str]
    done_part: dict[str, float]
    elapsed: dict[str, float]
    seconds: list[float]
    at_once: int = 0

    @classmethod
    def read(cls, sweep: Path, jobs: Iterable[str], since: float, at_once: int = 0) -> "SweepStatus":
        """Read the folders of `jobs`. A job that has been running since before `since`, this start, was killed."""
        status = cls({}, {}, {}, {}, [])
        for job in jobs:
            known = read_state(sweep / job)
            state = known.state if known else "waiting"
            if state != "done" and is_finished(sweep / job):
                state = "done"  # trained outside of a sweep, or by one that was killed
            elif known and state != "done" and known.since < since:
                state = "waiting"
            status.jobs[job] = state
            if state == "running":
                status.figures[job], status.done_part[job] = progress_of(sweep / job)
                status.elapsed[job] = time.time() - (known.since if known else since)
            elif known and known.seconds and known.since >= since:
                status.seconds.append(known.seconds)
        status.at_once = max(at_once, len(status.done_part))
        return status

    @property
    def seconds_left(self) -> float | None:
        """How long the rest will take if each job takes as long as those so far; None while that is unknown."""
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
    """Writes the plan of a sweep, shows its status while it runs, and the next command at its end.

    A terminal gets a table that renews itself, a log a line at each change. Where jobs failed or were stopped, the
    process ends with exit code 2.
    """

    def __init__(self) -> None:
        self.over = threading.Event()
        self.thread: threading.Thread | None = None
        self.sweep = Path()
        self.jobs: dict[str, str] = {}  # the name of each, by folder
        self.since = 0.0
        self.at_once = 0

    def __getstate__(self) -> dict[str, Any]:
        return {}  # a launcher pickles callbacks for the processes of its jobs, which show nothing

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Write the plan and begin to show the status. If a job cannot be composed, Hydra's sweeper says so."""
        self.sweep, self.since = Path(config.hydra.sweep.dir), time.time()
        task = list(config.hydra.overrides.task)
        of_hydra = [each for each in config.hydra.overrides.hydra if named_by(each) != "hydra.mode"]
        params = [f"{key}={value}" for key, value in (config.hydra.sweeper.get("params") or {}).items()]
        loader = GlobalHydra.instance().config_loader()
        _ = config.hydra.sweep.subdir  # resolved once for all jobs: their names hold the settings that are swept
        jobs: dict[str, list[str]] = {}
        try:
            parsed = OverridesParser.create(loader).parse_overrides([*params, *task])
            for overrides in itertools.chain.from_iterable(BasicSweeper.split_arguments(parsed, None)):
                jobs[loader.load_sweep_config(config, overrides).hydra.sweep.subdir] = overrides
        except (HydraException, OmegaConfBaseException):
            return
        common = set.intersection(*map(set, jobs.values()))
        different = {job: [each for each in overrides if each not in common] for job, overrides in jobs.items()}
        self.jobs = {job: ",".join(overrides) or job for job, overrides in different.items()}
        write_plan(self.sweep, Plan((*task, *of_hydra), jobs))
        if file := os.environ.get("HEADCOUNT_SWEEP_FILE"):  # of the Makefile, which reports on the sweep
            Path(file).write_text(f"sweep={quoted(show(self.sweep))}", encoding="utf-8")
        os.environ[SWEEP] = str(os.getpid())
        self.thread = threading.Thread(target=self.show, daemon=True)
        self.thread.start()
        atexit.register(self.close)  # Hydra has no callback for a sweep that was interrupted

    def show(self) -> None:
        """Show the status until the sweep is over."""
        console = Console(stderr=True)
        if sys.stderr.isatty():
            with Live(console=console, transient=True, auto_refresh=False) as live:
                while not self.over.wait(1):
                    live.update(self.read().table(self.jobs), refresh=True)
            return
        shown: dict[str, str] = {}
        while not self.over.wait(1):
            status = self.read()
            if status.jobs != shown:
                shown = status.jobs
                sys.stderr.write(f"sweep {show(self.sweep)}: {status.summary()}\n")

    def read(self) -> SweepStatus:
        status = SweepStatus.read(self.sweep, self.jobs, self.since, self.at_once)
        self.at_once = status.at_once
        return status

    def close(self) -> None:
        """Stop, and print the status, once."""
        if self.thread is None:
            return
        self.over.set()
        self.thread.join()
        self.thread = None
        atexit.unregister(self.close)
        status, place = self.read(), show(self.sweep)
        lines = [f"sweep {place}: {status.summary()}"]
        for job, state in status.jobs.items():
            if state == "failed":
                lines.append(f"failed: {self.jobs[job]}: {failure(self.sweep / job)}")
        if set(status.jobs.values()) != {"done"}:
            lines.append("the same command again does what is missing")
        if "done" in status.jobs.values():
            lines.append(f"next:  {command('report', sweep=place)}")
        sys.stdout.write("\n".join(lines) + "\n")

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Print the status. Raises SystemExit with code 2 if a job is not done."""
        self.close()
        if self.jobs and set(self.read().jobs.values()) != {"done"}:
            sys.exit(2)
