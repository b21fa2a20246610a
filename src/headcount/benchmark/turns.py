"""Training in turn: processes that stay alive and each make a few steps a round, so that what makes the machine slower
for minutes makes all of them slower."""

import contextlib
import json
import math
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from headcount.benchmark.environments import PeerError, kill, last_complaint
from headcount.errors import need

PATIENCE = 20  # seconds that a process has to end by itself
FIRST_STEPS = 3  # before anything is timed: kernels are compiled, and memory grows


class Turn:
    """A process that makes as many training steps as it is asked for, reports, and sleeps until it is asked again.

    A context: at its end the process is ended too. errors: the file for what the process complains about.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], errors: Path) -> None:
        self.errors = errors
        with errors.open("wb") as file:
            self.process = subprocess.Popen(
                command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, process_group=0
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            with contextlib.suppress(BrokenPipeError, subprocess.TimeoutExpired):
                self.process.communicate(timeout=PATIENCE)  # which closes its input; it then removes its files
        finally:
            kill(self.process.pid)
            self.process.wait()

    def steps(self, count: int) -> dict[str, Any]:
        """Let it make `count` training steps: its report, with `seconds`. Raises PeerError where it ends instead."""
        asked, answers = self.process.stdin, self.process.stdout
        assert asked is not None
        assert answers is not None
        with contextlib.suppress(BrokenPipeError):
            asked.write(f"{count}\n".encode())
            asked.flush()
        for line in answers:
            if line.startswith(b"{"):
                return json.loads(line)
        raise PeerError(last_complaint(self.errors) or f"ended with code {self.process.wait()}")


def in_turn(turns: Sequence[Turn], rounds: int, seconds: float, warmup: float) -> Iterator[tuple[int, dict[str, Any]]]:
    """The index and the report of each turn, `rounds` times for everybody.

    All make the same number of steps, which takes the first of them about `seconds`, after a warm-up of `warmup`. Every
    second round goes backwards, so a machine that slows down steadily slows everybody down equally.
    """
    for turn in turns:
        turn.steps(FIRST_STEPS)
    step = turns[0].steps(FIRST_STEPS)["seconds"] / FIRST_STEPS
    if warm := round(warmup / step):
        for turn in turns:
            timed = turn.steps(warm)["seconds"]
            step = timed / warm if turn is turns[0] else step
    count = max(FIRST_STEPS, round(seconds / step))
    for round_ in range(rounds):
        order = range(len(turns))
        for index in order if round_ % 2 == 0 else reversed(order):
            yield index, turns[index].steps(count)


def relative_time(first: Sequence[float], other: Sequence[float]) -> list[float | None]:
    """The time of a row for the work that takes the first row 1, and its 95 % interval, from the rates of both in each
    round: the mean of the logarithms of the rounds' ratios, with Student's t. One round
    gives no interval.
    """
    need("bench")
    from scipy import stats  # not always installed, and only these figures need it

    ratios = [math.log(ours / theirs) for ours, theirs in zip(first, other, strict=False)]
    mean = sum(ratios) / len(ratios)
    if len(ratios) == 1:
        return [math.exp(mean), None, None]
    reach = float(stats.sem(ratios) * stats.t.ppf(0.975, len(ratios) - 1))
    return [math.exp(mean), math.exp(mean - reach), math.exp(mean + reach)]
