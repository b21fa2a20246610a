"""A training in a process of its own that is sent a signal at a given moment.

It is a fork of a process that has imported everything, which saves seconds. It writes each phase that it enters into a
pipe, so a moment can be one of a phase that lasts milliseconds.
"""

import collections
import faulthandler
import importlib
import mmap
import os
import pkgutil
import random
import runpy
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

SCRIPT = Path(__file__).parents[2] / "scripts" / "train.py"
PHASES = ("start-up", "steps", "validation", "checkpoint", "averaging", "choice of weights", "scoring", "end")
NEVER = 300.0  # seconds in which a process always enters another phase


@dataclass
class Moment:
    """When to send a signal: `after` seconds from the `occurrence`th time that `phase` begins; "" is the start."""

    phase: str
    occurrence: int
    after: float


@dataclass
class Ended:
    """The end of a process: the exit code, or minus its signal; the phase it was sent a signal in, None for none; the
    optimizer steps that were done by then; seconds from there to the end; all phases in order, with their seconds; and
    what it wrote to the terminal."""

    code: int
    phase: str | None
    steps: int
    seconds: float
    phases: list[tuple[str, float]]
    output: str


class Phases:
    """The phase of this process, as it tells its parent: a byte in a pipe at each change, and the step in memory."""

    def __init__(self) -> None:
        self.pipe = -1
        self.stack = [0]
        self.step = mmap.mmap(-1, 8)

    def tell(self) -> None:
        os.write(self.pipe, bytes([self.stack[-1]]))

    def wrap(self, owner: Any, name: str, phase: str) -> None:
        real = getattr(owner, name)

        def method(*arguments: Any, **options: Any) -> Any:
            self.stack.append(PHASES.index(phase))
            self.tell()
            try:
                return real(*arguments, **options)
            finally:
                self.stack.pop()
                self.tell()

        setattr(owner, name, method)

    def after(self, owner: Any, name: str, act: Callable[..., None]) -> None:
        real = getattr(owner, name)

        def method(*arguments: Any, **options: Any) -> Any:
            result = real(*arguments, **options)
            act(*arguments)
            return result

        setattr(owner, name, method)

    def begin(self, phase: str) -> None:
        self.stack = [PHASES.index(phase)]
        self.tell()


def instrumented() -> Phases:
    """Import everything, and have each phase told."""
    import pyarrow as pa
    import torch
    from pytorch_lightning.loops.evaluation_loop import _EvaluationLoop

    import headcount
    import headcount.run.train as train
    from headcount.training import averaging
    from headcount.training.callbacks import LastCheckpoint, TrainingProgress

    for package in ("data", "decoding", "evaluation", "grammar", "model", "run", "training"):
        for module in pkgutil.walk_packages([f"{headcount.__path__[0]}/{package}"], f"headcount.{package}."):
            importlib.import_module(module.name)
    torch.set_num_threads(1)
    pa.set_cpu_count(1)
    phases = Phases()

    def count(callback: Any, trainer: Any, *rest: Any) -> None:
        phases.step[:] = struct.pack("q", trainer.global_step)

    phases.wrap(_EvaluationLoop, "run", "validation")
    phases.wrap(LastCheckpoint, "save", "checkpoint")
    phases.wrap(averaging.CheckpointAverage, "_snapshot", "averaging")
    phases.wrap(averaging.ExponentialAverage, "follow", "averaging")
    phases.wrap(averaging.BestCheckpoint, "on_validation_end", "averaging")
    phases.wrap(train, "scored_weights", "choice of weights")
    phases.wrap(train, "save_weights", "choice of weights")
    phases.wrap(train, "score_splits", "scoring")
    phases.after(train.OpenDirectory, "open", lambda *_: phases.begin("steps"))
    phases.after(train, "fit", lambda *_: phases.begin("end"))
    phases.after(TrainingProgress, "on_train_batch_end", count)
    return phases


class Child:
    """A process that trains with these words in a folder."""

    def __init__(self, phases: Phases, words: tuple[str, ...], folder: Path) -> None:
        self.phases, self.terminal = phases, folder / "terminal.txt"
        self.pipe, phases.pipe = os.pipe()
        phases.step[:] = struct.pack("q", -1)
        self.number = os.fork()
        if not self.number:
            _train(words, folder, self.terminal)
        os.close(phases.pipe)
        self.heard = [(time.monotonic(), 0)]

    @property
    def phase(self) -> str:
        return PHASES[self.heard[-1][1]]

    @property
    def steps(self) -> int:
        """Optimizer steps that it has done, -1 for none since it began."""
        return int(struct.unpack("q", self.phases.step[:])[0])

    def hear(self, seconds: float = NEVER) -> bool:
        """Wait that long for another phase; whether the process lives."""
        ready, _, _ = select.select([self.pipe], [], [], seconds)
        told = os.read(self.pipe, 1) if ready else None
        if told is None and seconds == NEVER:
            self.give_up()
        if told:
            self.heard.append((time.monotonic(), told[0]))
        return told != b""

    def give_up(self) -> NoReturn:
        """Kill a process that hangs. Raises TimeoutError with what it wrote, and with where its threads are."""
        os.kill(self.number, signal.SIGUSR2)
        time.sleep(1)
        os.kill(self.number, signal.SIGKILL)
        os.waitpid(self.number, 0)
        os.close(self.pipe)
        written = self.terminal.read_text(errors="replace")
        raise TimeoutError(f"{self.phase} took more than {NEVER:.0f} s\n{written}")

    def reaches(self, moment: Moment) -> bool:
        """Wait for a moment; whether the process lives then."""
        since = self.heard[0][0]
        if moment.phase:
            wanted, seen = PHASES.index(moment.phase), collections.Counter({0: 1})
            while seen[wanted] < moment.occurrence:
                if not self.hear():
                    return False
                seen[self.heard[-1][1]] += 1
            since = time.monotonic()
        while (left := since + moment.after - time.monotonic()) > 0:
            if not self.hear(left):
                return False
        return True

    def paused(self) -> bool:
        """Hold it, and hear all that it has told; whether it lives. Else it could be steps further by the signal."""
        os.kill(self.number, signal.SIGSTOP)
        os.waitid(os.P_PID, self.number, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        while select.select([self.pipe], [], [], 0)[0]:
            if not self.hear():
                return False
        return True

    def ended(self) -> tuple[int, float]:
        """Wait for its end: the exit code, or minus the signal; and when that was."""
        while self.hear():
            pass
        os.close(self.pipe)
        return os.waitstatus_to_exitcode(os.waitpid(self.number, 0)[1]), time.monotonic()


def process(phases: Phases, words: tuple[str, ...], folder: Path, moment: Moment | None, number: int = 0) -> Ended:
    """Run scripts/train.py with these words, and send it the signal `number` at the moment."""
    child, phase, steps, sent = Child(phases, words, folder), None, -1, 0.0
    if moment and child.reaches(moment) and child.paused():
        phase, steps, sent = child.phase, child.steps, time.monotonic()
        os.kill(child.number, number)
        os.kill(child.number, signal.SIGCONT)
    code, end = child.ended()
    until = [*(at for at, _ in child.heard[1:]), end]
    lasted = [(PHASES[each], after - at) for (at, each), after in zip(child.heard, until, strict=True)]
    return Ended(code, phase, steps, end - sent, lasted, child.terminal.read_text(errors="replace"))


def _train(words: tuple[str, ...], folder: Path, terminal: Path) -> None:
    """The child's part: never returns."""
    code = 70
    try:
        os.chdir(folder)
        with terminal.open("w") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        faulthandler.register(signal.SIGUSR2)
        sys.argv = [str(SCRIPT), *words]
        try:
            runpy.run_path(str(SCRIPT), run_name="__main__")
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def moments(rng: random.Random, whole: list[tuple[str, float]]) -> Iterator[Moment]:
    """Random moments in the life of a process that had these phases."""
    while True:
        if rng.random() < 0.5:
            yield Moment("", 0, rng.uniform(0, sum(seconds for _, seconds in whole)))
            continue
        phase = rng.choice(sorted({name for name, _ in whole}))
        lasted = [seconds for name, seconds in whole if name == phase]
        occurrence = rng.randrange(len(lasted))
        yield Moment(phase, occurrence + 1, rng.uniform(0, lasted[occurrence]))
