"""Measurement, as all peers share it: the job, a meter, the token ids and the report. Needs only numpy."""

import itertools
import json
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

PAD, UNK, BOS, EOS = 0, 1, 2, 3  # as headcount numbers them
LEAST = 2, 3  # steps of the warm-up, and of the window after it
ENDED = "ended"  # begins the name of the file that bench.py leaves for a run that has ended


Job = dict[str, Any]
Result = dict[str, Any]


def read_job() -> Job:
    """The job: the JSON file that the command line names."""
    return json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))


def main(works: Mapping[str, Callable[[Job], Result]], packages: tuple[str, ...]) -> None:
    """Do the work of the job with the function of that name, and report its result. Torch, if it is imported, gets the
    job's number of threads and a seed."""
    job = read_job()
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(job["threads"])
        torch.manual_seed(1)
    report(works[job["work"]](job), job["precision"], packages, job["device"])


def waiting(device: str) -> Callable[[], None] | None:
    """What waits until a GPU has done all its work; None for the processor, which waits by itself."""
    return sys.modules["torch"].cuda.synchronize if device == "cuda" else None


class WindowOverError(Exception):
    """The window of the measurement is over: raised to leave a training loop or a search of somebody else."""


class Company:
    """Runs that are measured at once. folder: where each leaves a file for what it has come to; runs: how many there
    are; run: the number of this one."""

    def __init__(self, folder: str, runs: int, run: int) -> None:
        self.folder = Path(folder)
        self.runs = runs
        self.run = run

    def all_are(self, what: str) -> bool:
        """Whether all runs have come to `what`, as this one has, or have ended, as one that failed."""
        (self.folder / f"{what}{self.run}").touch()
        names = [path.name for path in self.folder.iterdir()]
        return all(f"{what}{run}" in names or f"{ENDED}{run}" in names for run in range(self.runs))


class Meter:
    """Counts the work done in a window of time, which begins at the end of a step, `warmup` seconds after the first.

    done: whether the window is long enough. The job may set `least`, the fewest steps of warm-up and window, and
    `company`: the windows of these runs begin once all are warm, and each goes on until all are done.
    """

    def __init__(self, job: Job) -> None:
        self.warmup = job["warmup"]
        self.seconds = job["seconds"]
        self.wait = waiting(job.get("device", "cpu"))
        self.least_warmup, self.least_steps = job.get("least", LEAST)
        self.company = Company(*job["company"]) if "company" in job else None
        self.times: list[float] = []
        self.amounts: list[float] = []
        self.first: int | None = None  # the step at whose end the window begins

    def step(self, amount: float) -> None:
        """A step has ended: `amount` tokens or sentences are done."""
        self.times.append(time.perf_counter())
        self.amounts.append(amount)
        begins = self.first is None and self._warm
        if self.wait and (begins or self.done):
            self.wait()  # a window begins and ends when the GPU has done what it was asked for
            self.times[-1] = time.perf_counter()
        if begins:
            self.first = len(self.times) - 1

    @property
    def _warm(self) -> bool:
        if len(self.times) < self.least_warmup or self.times[-1] - self.times[0] < self.warmup:
            return False
        return self.company is None or self.company.all_are("warm")

    @property
    def done(self) -> bool:
        if self.first is None or len(self.times) - 1 - self.first < self.least_steps:
            return False
        if self.times[-1] - self.times[self.first] < self.seconds:
            return False
        return self.company is None or self.company.all_are("done")

    def measure(self, batches: Iterable[Any], process: Callable[[Any], float]) -> Result:
        """Process batches until the window is long enough; `process` returns the amount done. See `result`."""
        for batch in batches:
            self.step(process(batch))
            if self.done:
                break
        return self.result()

    def result(self) -> Result:
        """The rate (amount a second), and the window: its seconds, steps, and amount per step."""
        first = self.first or 0
        seconds, amount = self.times[-1] - self.times[first], sum(self.amounts[first + 1 :])
        steps = len(self.times) - 1 - first
        return {"rate": amount / seconds, "seconds": seconds, "steps": steps, "per_step": amount / steps}


def report(result: Result, precision: str, packages: tuple[str, ...], device: str = "cpu") -> None:
    """Print the result as JSON, the last line of standard output."""
    result |= {
        "precision": precision,
        "peak_memory": peak_memory(device),
        "versions": {name: _version(name) for name in packages},
    }
    sys.stdout.write("\n" + json.dumps(result) + "\n")
    sys.stdout.flush()


def peak_memory(device: str) -> int:
    """Peak memory of this process in bytes: resident, or on a GPU what torch has allocated there."""
    if device == "cuda":
        return sys.modules["torch"].cuda.max_memory_allocated()
    status = Path("/proc/self/status")
    if status.exists():  # on Linux, getrusage includes the parent process before exec
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def read_pairs(job: Job) -> tuple[list[list[int]], list[list[int]]]:
    """Source and target of the training pairs as token ids, without beginning and end of sentence."""
    arrays = np.load(job["arrays"])
    return _rows(arrays, "source"), _rows(arrays, "target")


def decode_batches(job: Job) -> list[list[list[int]]]:
    """The sentences to translate, without end of sentence, in batches of similar lengths.

    The batches are shuffled, in the same order for everybody, so that any part of them is representative.
    """
    sentences = sorted(_rows(np.load(job["arrays"]), "decode"), key=len)
    size = job["decode_batch"]
    batches = [sentences[start : start + size] for start in range(0, len(sentences), size)]
    return [batches[index] for index in np.random.default_rng(1).permutation(len(batches))]


def several(batches: list[list[Any]], count: int = 8) -> list[list[Any]]:
    """The sentences of `count` batches joined into one list, full batches first."""
    batches = sorted(batches, key=len, reverse=True)
    return [list(itertools.chain.from_iterable(batches[i : i + count])) for i in range(0, len(batches), count)]


def endless(batches: list[Any]) -> Iterator[Any]:
    while True:
        yield from batches


def padded(rows: list[list[int]], value: int = PAD) -> np.ndarray:
    """Rows [row, longest] as an array, filled with `value` at the end."""
    out = np.full((len(rows), max(map(len, rows))), value, dtype=np.int64)
    for line, row in zip(out, rows, strict=True):
        line[: len(row)] = row
    return out


def _rows(arrays: Any, name: str) -> list[list[int]]:
    ids, offsets = arrays[f"{name}_ids"], arrays[f"{name}_offsets"]
    return [row.tolist() for row in np.split(ids, offsets[1:-1])]
