"""Benchmark: each measurement in a process of its own, everybody in turn, round by round."""

import json
import logging
import math
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import torch
from omegaconf import DictConfig
from rich.console import Console
from rich.progress import Progress

from headcount.benchmark.environments import PeerError, busy_programs, environment, kill, last_complaint, watch
from headcount.benchmark.inputs import Inputs, own_shapes
from headcount.benchmark.peers.measure import ENDED
from headcount.benchmark.results import (
    Measurement,
    Measurements,
    Results,
    best,
    ceiling_precision,
    page_with_tables,
    shown,
    tables,
)
from headcount.benchmark.settings import check, read_rows, rows_of
from headcount.benchmark.turns import Turn, in_turn
from headcount.benchmark.workloads import (
    FIRST_MODEL_ONLY,
    FP32_AND_BF16,
    HEADCOUNT,
    NOT_ON_GPU,
    PEERS,
    SQUARES,
    WITH_CHILDREN,
    WORKS,
    Case,
)
from headcount.errors import InputError
from headcount.files import write_text
from headcount.processes import cores, multiplies_bf16, processor
from headcount.run.place import command

logger = logging.getLogger(__name__)

SCRIPTS = Path(__file__).parent / "peers"
SPINS = 300_000  # of libgomp at a barrier, unless the environment says otherwise


@dataclass(frozen=True)
class System:
    """One of those that take turns: a name, the precision `requested`, and peers/bench_<script>.py with its job.

    keep: whether it goes on even if it is faster in another precision. may_fail: whether the others go on without it.
    """

    name: str
    requested: str
    script: str
    job: Mapping[str, Any]
    keep: bool = False
    may_fail: bool = False


class Process(NamedTuple):
    """How a script is started, and the files for its output and its complaints."""

    command: list[str]
    environ: dict[str, str]
    out: Path
    err: Path


def benchmark(config: DictConfig, overrides: Sequence[str]) -> str:
    """Measure what the config says, or read what was measured; returns the tables, and writes the page.

    Raises InputError.
    """
    check(config)
    if config.read:
        rows, file = read_rows(Path(config.read)), config.read
    else:
        file = config.out
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(config, overrides, Path(folder))
            try:
                bench.measure_all()
            except KeyboardInterrupt:
                measured = f"{file} has what was measured" if bench.results.rows() else "nothing measured"
                logger.warning("stopped; %s", measured)
                raise
        rows = bench.results.rows()
    text = "\n".join(tables(rows, "simple")) + f"\n{file}: {len(rows)} figures\n"
    if not config.table:
        return f"{text}next:  {command('bench', f'read={file}', 'table=PAGE.md')}   (as a page)\n"
    path = Path(config.table)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page_with_tables(path.read_text(encoding="utf-8") if path.exists() else "", rows))
    return text


class Bench:
    """All measurements of one command."""

    def __init__(self, config: DictConfig, overrides: Sequence[str], folder: Path) -> None:
        self.config = config
        self.folder = folder
        self.threads = config.threads or (torch.get_num_threads() if "OMP_NUM_THREADS" in os.environ else cores())
        self.running: list[int] = []  # process groups
        self.pythons: dict[str, str] = {"headcount": sys.executable}
        self.inputs = Inputs(config, overrides, folder)
        measured = [each for each in overrides if not each.startswith(("out=", "table=", "debug="))]
        self.square = SQUARES[config.device]
        common = {
            "date": date.today().isoformat(),
            "processor": processor(),
            "gpu": torch.cuda.get_device_name() if config.device == "cuda" else None,
            "threads": self.threads,
            "command": command("bench", *measured),
        }
        self.results = Results(self.inputs, common)

    def measure_all(self) -> None:
        """Every case of the works that were asked for, the ceilings first."""
        works = [work for work in WORKS if work in self.config.work]
        for name in self.config.peers:
            if set(PEERS[name].precisions) & set(works):
                self._find_python(name)
        if {"train", "decode", "ceiling", "quality"} & set(works):
            for model in (None, *self.inputs.sizes):
                self._measure(Case("ceiling", model))
        first = next(iter(self.inputs.sizes))
        models: dict[str, list[str | None]] = {work: [first] for work in FIRST_MODEL_ONLY}
        models |= {"ceiling": [], "prepare": [None], "plan": [None], "search": [None]}
        cases = [Case(work, model) for work in works for model in models.get(work, list(self.inputs.sizes))]
        self._announce(cases)
        for case in cases:
            self._measure(case)

    def _find_python(self, peer: str) -> None:
        """Install the peer's environment where there is none; log it and leave the peer out where that fails."""
        try:
            self.pythons[peer] = self.config.pythons[peer] or environment(peer, PEERS[peer].requirements)
        except PeerError as error:
            logger.warning("%s is left out: %s", peer, error)

    def systems(self, case: Case) -> list[System]:
        """The systems that take turns."""
        config = self.config
        size = self.inputs.sizes[case.model or config.models[0]]
        job: dict[str, Any] = {"work": case.work, "model": size}
        if case.work == "ceiling":
            shapes = own_shapes(size, config.vocab_size, config.batch_tokens) if case.model else [(self.square,) * 3]
            job |= {"shapes": shapes, "seconds": min(5, config.seconds)}
            return [System("torch", each, "ceiling", job, keep=True) for each in self._precisions(FP32_AND_BF16)]
        if case.work in ("start", "prepare", "plan", "profile"):
            if case.work == "prepare":
                job["overrides"] = self.inputs.write_files()
            elif case.work == "plan":
                job["pairs"] = config.pairs
            return [System("headcount", "auto", "headcount", job)]
        if case.work == "lightning":
            bare = System("bare loop", "auto", "headcount", job)
            return [System("headcount", "auto", "headcount", {**job, "work": "train"}), bare]
        if case.work == "together":
            one = {**job, "work": "train"}
            runs = config.runs or self.threads
            several = {**one, "threads": max(1, self.threads // runs), "runs": runs}
            return [
                System("headcount", "auto", "headcount", one),
                System(f"{runs} at once", "auto", "headcount", several),
            ]
        if case.work == "search":
            return list(self._searches(job))
        if case.work == "rows":
            rows = rows_of(config.rows)
            return [System(name, "auto", "headcount", {**job, "changes": rows[name]}) for name in rows]
        if case.work == "crowded":
            return list(self._crowded({**job, "work": "train"}))
        if case.work == "quality":
            plain = System("plain operations", "32-true", "headcount", {**job, "plain": True})
            return [System("headcount", "auto", "headcount", {**job, "plain": False}), plain]
        peers = {"headcount": HEADCOUNT, **{name: PEERS[name] for name in config.peers if name in self.pythons}}
        measured = [
            System(name, precision, name, job, peer.keeps_all, may_fail=name in PEERS)
            for name, peer in peers.items()
            if config.device == "cpu" or (case.work, name) not in NOT_ON_GPU
            for precision in self._precisions(peer.precisions.get(case.work, ()))
        ]
        if config.compile and case.work == "train":
            compiled = {**job, "changes": ["optimizer=adamw", "compile=true"]}  # the optimizer as everybody
            measured.append(System("headcount, compiled", "auto", "headcount", compiled, may_fail=True))
        return measured

    def _precisions(self, known: Sequence[str]) -> list[str]:
        """Those that are measured: nobody trains in float32 on a GPU, nor in bf16 where a processor emulates it."""
        unused = "fp32" if self.config.device != "cpu" else "" if multiplies_bf16() else "bf16"
        return [each for each in known if ceiling_precision(each) != unused]

    def _searches(self, job: Mapping[str, Any]) -> Iterator[System]:
        """Beam search of a trained run, exact, with a shortlist and with a horizon too, and that of CTranslate2 if it
        is a peer; with one thread and with all."""
        listed, horizon = {"shortlist": dict(self.config.shortlist)}, {"horizon": self.config.horizon}
        ways: dict[str, dict[str, Any]] = {"headcount": {}, "headcount, shortlist": listed}
        if self.config.horizon is not None and self.config.beam > 1:
            ways["headcount, shortlist and horizon"] = listed | horizon
        if "ctranslate2" in self.config.peers:
            ways["ctranslate2"] = {}
        job = {**job, "run": str(Path(self.config.run).resolve()), "least": (1, 2)}
        for threads in sorted({1, self.threads}):
            for name, settings in ways.items():
                own = {**job, "threads": threads, "engine": name.partition(",")[0], "search": settings}
                title = f"{name}, {threads} thread{'s'[: threads > 1]}"
                precisions = (HEADCOUNT if settings or name == "headcount" else PEERS[name]).precisions["decode"]
                yield from (System(title, each, "search", own, keep=True) for each in self._precisions(precisions))

    def _crowded(self, job: Mapping[str, Any]) -> Iterator[System]:
        """Training as it is, with threads that always spin as libgomp does by itself, and with one thread; each alone
        and beside busy programs."""
        spinning = {"environ": {"GOMP_SPINCOUNT": str(SPINS)}}
        changes: Mapping[str, Mapping[str, Any]] = {"headcount": {}, "spinning": spinning, "one thread": {"threads": 1}}
        for name, changed in changes.items():
            yield System(name, "auto", "headcount", {**job, **changed})
            busy = max(1, self.threads // 2)
            yield System(f"{name}, beside", "auto", "headcount", {**job, **changed, "busy": busy})

    def _measure(self, case: Case) -> None:
        """Everybody in turn, once a round."""
        remaining = self.systems(case)
        results = self.results.cases.setdefault(case, {})
        if case.work == "rows":
            self._measure_in_turn(remaining, results)
            return
        if case.work == "start":
            self._try(case, 0, remaining[0])  # which fills the system's caches
        for round_ in range(1, self.config.rounds + 1):
            for system in list(remaining):
                known = round_ == 1 and (system.name, system.requested) in results  # "auto" has chosen the same
                result = None if known else self._try(case, round_, system)
                if result is None:
                    remaining.remove(system)
                    continue
                results.setdefault((system.name, result["precision"]), []).append(result)
                self._save()
            if round_ == 1:
                fastest = {system.name: best(results, system.name)[0]["requested"] for system in remaining}
                remaining = [each for each in remaining if each.keep or each.requested == fastest[each.name]]

    def _measure_in_turn(self, systems: Sequence[System], results: Measurements) -> None:
        """Everybody at once, in processes that take short turns. Raises InputError where one of them ends."""
        config = self.config
        with ExitStack() as running, Progress(console=Console(stderr=True), transient=True) as bar:
            started = (self._process(system, self._job(system, 1), run) for run, system in enumerate(systems))
            turns = [running.enter_context(Turn(each.command, each.environ, each.err)) for each in started]
            done = bar.add_task("training in turn", total=config.rounds * len(systems))
            try:
                for index, result in in_turn(turns, config.rounds, config.seconds, config.warmup):
                    result |= {"requested": "auto", "keep": False}
                    results.setdefault((systems[index].name, result["precision"]), []).append(result)
                    bar.advance(done)
                    if len(results) == len(systems):
                        self._save()
            except PeerError as error:
                raise InputError(f"rows: {error}") from error

    def _try(self, case: Case, round_: int, system: System) -> Measurement | None:
        """One measurement, logged in one line; None where a peer fails. Raises InputError where headcount does."""
        what = f"{case.work} {case.model or ''}".strip()
        try:
            with Console(stderr=True).status(f"{what}, {system.name} {system.requested}"):
                result = self.run_job(system, round_) | {"requested": system.requested, "keep": system.keep}
        except PeerError as error:
            if not system.may_fail:
                raise InputError(f"{what}, {system.name}: {error}") from error
            logger.warning("%s, %s %s is left out: %s", what, system.name, system.requested, error)
            return None
        figure = shown(result["rate"], WORKS[case.work].figure)
        turn = f"round {round_} of {self.config.rounds}" if round_ else "warm-up"
        logger.info("%-16s %-15s %-14s %-10s %s", what, turn, system.name, result["precision"], figure)
        return result

    def run_job(self, system: System, round_: int = 1) -> Measurement:
        """The report of the system's script; of several runs at once, rate and memory are summed. Raises PeerError."""
        job = self._job(system, round_)
        runs = job.get("runs", 1)
        with tempfile.TemporaryDirectory(dir=self.folder) as folder, ThreadPoolExecutor(runs) as pool:
            jobs = [job | ({"company": (folder, runs, run)} if runs > 1 else {}) for run in range(runs)]
            measured = [pool.submit(self._run, system, jobs[run], run) for run in range(runs)]
            try:
                results = [each.result() for each in measured]
            except BaseException:  # the pool waits for its threads, and they for their processes
                while wait(measured, timeout=0.1).not_done:  # one may have been about to start
                    for group in list(self.running):
                        kill(group)
                raise
        return results[0] | {name: sum(result[name] for result in results) for name in ("rate", "peak_memory")}

    def _job(self, system: System, round_: int) -> dict[str, Any]:
        config = self.config
        same = ("device", "seconds", "warmup", "vocab_size", "batch_tokens", "decode_batch", "beam", "new_tokens")
        job = {name: config[name] for name in same} | {
            "threads": self.threads,
            "arrays": str(self.inputs.arrays),
            "mean_target": float(self.inputs.target_lengths.mean()),
            "smoothing": 0.1,
            "clip": 1.0,
            "overrides": self.inputs.overrides,
            "precision": system.requested,
            "seed": round_,
        }
        return job | dict(system.job)

    def _process(self, system: System, job: Mapping[str, Any], run: int) -> Process:
        """How to start the system's script; writes its job to a file."""
        path, out, err = (self.folder / f"{name}{run}" for name in ("job.json", "out.txt", "err.txt"))
        path.write_text(json.dumps(job), encoding="utf-8")
        threads = str(job["threads"])
        environ = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        environ |= {"CUDA_VISIBLE_DEVICES": ""} if job["device"] == "cpu" else {}
        environ |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
        environ |= job.get("environ", {})
        python = self.pythons.get(system.name, sys.executable)
        return Process([python, str(SCRIPTS / f"bench_{system.script}.py"), str(path)], environ, out, err)

    def _run(self, system: System, job: Mapping[str, Any], run: int) -> Measurement:
        try:
            command, environ, out, err = self._process(system, job, run)
            with out.open("wb") as report, err.open("wb") as errors, busy_programs(job.get("busy", 0)):
                code, peak = watch(command, environ, report, errors, job["work"] in WITH_CHILDREN, self.running)
        finally:
            if "company" in job:
                (Path(job["company"][0]) / f"{ENDED}{run}").touch()
        reports = [line for line in out.read_text(errors="replace").splitlines() if line.startswith("{")]
        if code or not reports:
            if self.config.debug:
                sys.stderr.write(err.read_text(errors="replace"))
            raise PeerError(last_complaint(err) or f"ended with code {code}")
        result = json.loads(reports[-1])
        return result if job["device"] == "cuda" else {**result, "peak_memory": max(result["peak_memory"], peak)}

    def _announce(self, cases: Iterable[Case]) -> None:
        """Log about how long it will take: a step reaches a quarter of the ceiling, in work=quality half of it, and a
        measurement begins in 8 s."""
        seconds, measurements, ceiling = 0.0, 0, self.results.ceiling(None, "fp32") or math.inf
        for case in cases:
            if case.work in ("prepare", "plan"):
                a_second = 10_000 if case.work == "prepare" else 500_000
                count, each = self.config.rounds, 8 + self.config.pairs / a_second
            elif case.work == "rows":
                rows = len(self.systems(case))
                count, each = (
                    self.config.rounds * rows,
                    self.config.seconds + (8 + self.config.warmup) / self.config.rounds,
                )
            elif case.work == "search":
                count, each = self.config.rounds * len(self.systems(case)), 8 + self.config.warmup + self.config.seconds
            elif case.work == "quality":
                operations, tokens = self.inputs.operations(case)
                steps = self.inputs.configs[case.model or ""].trainer.max_steps
                step = operations * min(1, self.config.batch_tokens / tokens) / (0.5 * ceiling)
                count, each = 2 * self.config.rounds, steps * step
            else:
                systems = self.systems(case)
                again = len({system.name for system in systems if not system.keep}) + sum(each.keep for each in systems)
                count = len(systems) + (self.config.rounds - 1) * again
                operations, whole = self.inputs.operations(case)
                part = self.config.decode_batch if case.work == "decode" else self.config.batch_tokens
                step = operations * min(1, part / whole) / (0.25 * ceiling)
                window = max(self.config.warmup, step) + max(self.config.seconds, 3 * step)
                each = 8 + step + (window if case.work != "start" else 0)
            measurements += count
            seconds += count * each
        if measurements:
            logger.info("%d measurements, about %d minutes", measurements, math.ceil(seconds / 60))

    def _save(self) -> None:
        if rows := self.results.rows():
            path = Path(self.config.out)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, json.dumps(rows, indent=2) + "\n")
