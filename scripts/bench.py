"""Measure the speed of headcount and of others at the same work; `--help` lists what can be set.

This script prepares the data, starts each measurement in a process of its own (scripts/peers/), in turn, and makes
tables of what comes back.
"""

import contextlib
import json
import logging
import math
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from hydra import compose
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from tabulate import tabulate

from headcount.data.corpora import SPLITS
from headcount.data.module import TranslationData
from headcount.errors import InputError
from headcount.files import write_text
from headcount.machine import cores
from headcount.run.config import build_data
from headcount.run.directory import processor
from headcount.run.script import CONF, main
from headcount.run.types import fits

logger = logging.getLogger("headcount.bench")

ROOT = CONF.parent
ENVIRONMENTS = ROOT / ".venv-bench"
# Settings that take a,b as [a,b], under any of their names; Hydra would look for `model` among the config groups.
LISTS = {"work": "work", "model": "models", "models": "models", "peers": "peers"}
SIZES = ("d_model", "encoder_layers", "decoder_layers", "d_feed_forward", "num_heads", "dropout")
WORKS = {  # what a row's figure is called, and the title of its table
    "train": ("tokens_per_second", "training"),
    "decode": ("sentences_per_second", "translating"),
    "ceiling": ("operations_per_second", "products of matrices alone"),
    "lightning": ("tokens_per_second", "headcount's steps with Lightning and without"),
    "together": ("tokens_per_second", "training one model with all threads, or several at once with one thread each"),
    "start": ("seconds", "from the end of Python's imports to the end of the first step"),
    "prepare": ("seconds", "preparing text"),
    "quality": ("loss", "validation loss at the end of training, a seed each round, computed in float32"),
}
UNITS = {  # in which they are shown, and how many to one of these
    "tokens_per_second": ("tokens/s", 1),
    "sentences_per_second": ("sentences/s", 1),
    "operations_per_second": ("Gop/s", 1e9),
    "seconds": ("s", 1),
    "loss": ("nats a token", 1),
}
SQUARE = 2048  # rows and columns of the product that stands for the machine
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"  # of the part of a page that is written anew


@dataclass(frozen=True)
class Peer:
    """Who is measured.

    precisions: what it can compute in, by work; all are tried in the first round, and the fastest goes on, or all where
    `keeps_all`. requirements: what pip installs for it; none for what runs in headcount's own environment.
    """

    precisions: Mapping[str, tuple[str, ...]]
    requirements: tuple[str, ...] = ()
    keeps_all: bool = False


HALF = ("fp32", "bf16")
BOTH = {"train": HALF, "decode": HALF}
TORCH = f"torch=={version('torch')}"  # headcount's own, the same for everybody
HEADCOUNT = Peer({"train": ("auto", "32-true"), "decode": ("float32", "bfloat16")})
PEERS = {
    "transformers": Peer(
        BOTH, (TORCH, "transformers==5.23.0", "accelerate==1.15.0", "datasets==5.2.0", "numpy==2.4.6")
    ),
    # Its requirements name what it no longer needs, and miss what a newer setuptools has dropped.
    "joeynmt": Peer(BOTH, (TORCH, "joeynmt==2.3.0", "setuptools<81", "numpy==2.4.6")),
    "torch_loop": Peer(BOTH),
    "ctranslate2": Peer(
        {"decode": ("float32", "int8")}, ("ctranslate2==4.8.5", "setuptools<81", "numpy==2.4.6"), keeps_all=True
    ),
}


class PeerError(Exception):
    """A measurement ended without a figure; the message says why."""


@dataclass(frozen=True)
class Side:
    """One of those that take turns: who, in the precision `asked` for, by scripts/peers/bench_<script>.py."""

    who: str
    asked: str
    script: str
    job: Mapping[str, Any]
    keep: bool = False  # even if it is faster in another precision


@dataclass(frozen=True)
class Group:
    """What is compared in one table."""

    work: str
    model: str | None


Results = dict[tuple[str, str], list[dict[str, Any]]]  # by who and precision, one for each round


@main("bench")
def run(config: DictConfig) -> None:
    check(config)
    if config.read:
        rows, file = read_rows(Path(config.read)), config.read
    else:
        file = config.out
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(config, list(HydraConfig.get().overrides.task), Path(folder))
            try:
                bench.measure_all()
            except KeyboardInterrupt:
                logger.warning("stopped; %s", f"{file} has what was measured" if bench.rows() else "nothing measured")
                raise
        rows = bench.rows()
    sys.stdout.write("\n".join(tables(rows, "simple")) + f"\n{file}: {len(rows)} figures\n")
    if config.table:
        path = Path(config.table)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, page(path.read_text(encoding="utf-8") if path.exists() else "", rows))
    else:
        sys.stdout.write(f"next:  python scripts/bench.py read={file} table=docs/performance.md   (as a page)\n")


def as_lists(arguments: Iterable[str]) -> list[str]:
    """The command line with work=a,b as work=[a,b], for what Hydra would take for a sweep."""
    rewritten = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if equals and name in LISTS:
            value = value.strip("'\" ")
            argument = f"{LISTS[name]}={value if value.startswith('[') else f'[{value}]'}"
        rewritten.append(argument)
    return rewritten


def check(config: DictConfig) -> None:
    """Raises InputError with a line for each setting that is wrong."""
    wrong = []
    models = sorted(path.stem for path in (CONF / "model").glob("*.yaml") if path.stem != "default")
    for name, known in {"work": list(WORKS), "models": models, "peers": list(PEERS)}.items():
        values = config[name]
        if not OmegaConf.is_list(values):
            wrong.append(f"{name}={values}: must be a list, such as {name}={','.join(known[:2])}")
            continue
        wrong += [f"{name}={value}: there are {', '.join(known)}" for value in values if value not in known]
        if not values and name != "peers":
            wrong.append(f"{name}=[]: nothing to do; there are {', '.join(known)}")
    least = dict.fromkeys(("rounds", "batch_tokens", "sentences", "decode_batch", "beam", "pairs"), 1)
    least |= {"vocab_size": 8, "new_tokens": 2, "seconds": 0, "warmup": 0} | ({"threads": 1} if config.threads else {})
    for name, least_value in least.items():
        value, real = config[name], name in ("seconds", "warmup")
        if not fits(value, float if real else int):
            wrong.append(f"{name}={value}: must be {'a number' if real else 'a whole number'}")
        elif value < least_value:
            wrong.append(f"{name}={value}: must be {least_value} or more")
    if config.threads == 0:
        wrong.append("threads=0: must be 1 or more, or null for as many as there are")
    for name, python in config.pythons.items():
        if python is not None and shutil.which(str(python)) is None:
            wrong.append(f"pythons.{name}={python}: no such program")
    for name in ("out", "table", "read"):
        value = config[name]
        if not fits(value, str if name == "out" else str | None) or value == "":
            wrong.append(f"{name}={value}: must be a path")
        elif name != "read" and value and Path(value).is_dir():
            wrong.append(f"{name}={value}: is a folder; give a file")
    if fits(config.table, str) and Path(config.table).is_file():  # looked at now, not when an hour has passed
        try:
            page_parts(Path(config.table).read_text(encoding="utf-8"))
        except (InputError, UnicodeDecodeError) as error:
            wrong.append(f"table={config.table}: {error}")
    if wrong:
        raise InputError("\n".join(wrong))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The figures of an earlier run. Raises InputError."""
    try:
        return list(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise InputError(f"read={path}: no figures can be read from it ({error})") from error


class Bench:
    """All measurements of one command."""

    def __init__(self, config: DictConfig, overrides: Sequence[str], folder: Path) -> None:
        self.config = config
        self.folder = folder
        self.threads = config.threads or int(os.environ.get("OMP_NUM_THREADS", 0)) or cores()
        self.results: dict[Group, Results] = {}
        self.pythons: dict[str, str] = {"headcount": sys.executable}
        measured = [each for each in overrides if not each.startswith(("out=", "table=", "debug="))]
        self.common = {
            "date": date.today().isoformat(),
            "processor": processor(),
            "threads": self.threads,
            "command": shlex.join(["python", "scripts/bench.py", *measured]),
        }
        chosen = [each for each in overrides if each.lstrip("+~").startswith(("data=", "data."))]
        if not _settles_pieces(overrides, config):
            chosen.append(f"data.vocab_size={config.vocab_size}")
        self.overrides = [*chosen, f"data.batch_tokens={config.batch_tokens}"]
        self.configs = {name: compose("train", [*self.overrides, f"model={name}"]) for name in config.models}
        self.sizes = {
            name: {"name": name, **{key: composed.model[key] for key in SIZES}}
            for name, composed in self.configs.items()
        }
        self.data = build_data(self.configs[config.models[0]])
        self.data.prepare_data()
        if self.data.tokenizer.vocab_size > config.vocab_size:
            raise InputError(
                f"vocab_size={config.vocab_size}: fewer than the corpus has pieces, which are "
                f"{self.data.tokenizer.vocab_size}; raise it, or give a smaller data.vocab_size"
            )
        self.source_lengths, self.target_lengths, self.decode_lengths = self._write_arrays()

    def _write_arrays(self) -> tuple[np.ndarray, ...]:
        """The piece numbers for everybody; lengths of source, target, and of what is translated, ends counted."""
        pairs, test = self.data.data["train"], self.data.data["test"]
        source, target = pairs["source_ids"][:], pairs["target_ids"][:]
        decode = ([ids for ids in test["source_ids"][:] if len(ids)] + source)[: self.config.sentences]
        arrays: dict[str, np.ndarray] = {}
        for name, rows in {"source": source, "target": target, "decode": decode}.items():
            arrays[f"{name}_pieces"] = np.concatenate([np.asarray(row, dtype=np.int32) for row in rows])
            arrays[f"{name}_offsets"] = np.cumsum([0, *map(len, rows)])
        np.savez(self.folder / "work.npz", **arrays)
        return tuple(np.diff(arrays[f"{name}_offsets"]) + 1 for name in ("source", "target", "decode"))

    def measure_all(self) -> None:
        works = [work for work in WORKS if work in self.config.work]
        for name in self.config.peers:
            if set(PEERS[name].precisions) & set(works):
                self._find_python(name)
        if {"train", "decode", "ceiling"} & set(works):
            for model in (None, *self.sizes):
                self._measure(Group("ceiling", model))
        first = next(iter(self.sizes))
        models: dict[str, list[str | None]] = {work: [first] for work in ("lightning", "together", "start", "quality")}
        models |= {"ceiling": [], "prepare": [None]}
        groups = [Group(work, model) for work in works for model in models.get(work, list(self.sizes))]
        self._announce(groups)
        for group in groups:
            self._measure(group)

    def _find_python(self, peer: str) -> None:
        """Make the peer's environment where there is none; say so and leave the peer out where that fails."""
        try:
            self.pythons[peer] = self.config.pythons[peer] or environment(peer, PEERS[peer].requirements)
        except PeerError as error:
            logger.warning("%s is left out: %s", peer, error)

    def sides(self, group: Group) -> list[Side]:
        """Who takes turns."""
        job: dict[str, Any] = {"work": group.work, "model": self.sizes.get(group.model or self.config.models[0])}
        if group.work == "ceiling":
            shapes = [(SQUARE,) * 3]
            if group.model:
                shapes = own_shapes(self.sizes[group.model], self.config.vocab_size, self.config.batch_tokens)
            job |= {"shapes": shapes, "seconds": min(5, self.config.seconds)}
            return [Side("torch", precision, "ceiling", job, keep=True) for precision in HALF]
        if group.work == "lightning":
            bare = Side("bare loop", "auto", "headcount", job)
            return [Side("headcount", "auto", "headcount", {**job, "work": "train"}), bare]
        if group.work == "together":
            runs = self.threads
            several = Side(f"{runs} at once", "auto", "headcount", {**job, "work": "train", "threads": 1, "runs": runs})
            return [Side("headcount", "auto", "headcount", {**job, "work": "train"}), several]
        if group.work == "quality":
            plain = Side("plain operations", "32-true", "headcount", {**job, "plain": True})
            return [Side("headcount", "auto", "headcount", {**job, "plain": False}), plain]
        if group.work == "prepare":
            job["overrides"] = write_files(self.data, self.config.pairs, self.folder)
        if group.work in ("start", "prepare"):
            return [Side("headcount", "auto", "headcount", job)]
        peers = {"headcount": HEADCOUNT, **{name: PEERS[name] for name in self.config.peers if name in self.pythons}}
        return [
            Side(name, precision, name, job, peer.keeps_all)
            for name, peer in peers.items()
            for precision in peer.precisions.get(group.work, ())
        ]

    def _measure(self, group: Group) -> None:
        """Everybody in turn, as often as there are rounds."""
        left = self.sides(group)
        results = self.results.setdefault(group, {})
        if group.work == "start":
            self._try(group, 0, left[0])  # which fills the system's caches
        for round_ in range(1, self.config.rounds + 1):
            for side in list(left):
                known = round_ == 1 and (side.who, side.asked) in results  # "auto" has come to the same
                result = None if known else self._try(group, round_, side)
                if result is None:
                    left.remove(side)
                    continue
                results.setdefault((side.who, result["precision"]), []).append(result)
                self._save()
            if round_ == 1:
                fastest = {side.who: best(results, side.who)[0]["asked"] for side in left}
                left = [side for side in left if side.keep or side.asked == fastest[side.who]]

    def _try(self, group: Group, round_: int, side: Side) -> dict[str, Any] | None:
        """One measurement, said in one line; None where a peer fails. Raises InputError where headcount does."""
        what = f"{group.work} {group.model or ''}".strip()
        try:
            with Console(stderr=True).status(f"{what}, {side.who} {side.asked}"):
                result = self.run_job(side, round_) | {"asked": side.asked, "keep": side.keep}
        except PeerError as error:
            if side.who not in PEERS:
                raise InputError(f"{what}, {side.who}: {error}") from error
            logger.warning("%s, %s %s is left out: %s", what, side.who, side.asked, error)
            return None
        figure = shown(result["rate"], WORKS[group.work][0])
        turn = f"round {round_} of {self.config.rounds}" if round_ else "warm-up"
        logger.info("%-16s %-15s %-14s %-10s %s", what, turn, side.who, result["precision"], figure)
        return result

    def run_job(self, side: Side, round_: int = 1) -> dict[str, Any]:
        """What the side's script answers. Raises PeerError."""
        config = self.config
        same = ("seconds", "warmup", "vocab_size", "batch_tokens", "decode_batch", "beam", "new_tokens")
        job = {name: config[name] for name in same} | {
            "threads": self.threads,
            "arrays": str(self.folder / "work.npz"),
            "mean_target": float(self.target_lengths.mean()),
            "smoothing": 0.1,
            "clip": 1.0,
            "overrides": self.overrides,
            "precision": side.asked,
            "seed": round_,
        }
        job |= side.job
        with ThreadPoolExecutor(job.get("runs", 1)) as pool:
            results = list(pool.map(lambda run: self._run(side, job, run), range(job.get("runs", 1))))
        whole = {name: sum(result[name] for result in results) for name in ("rate", "peak_memory")}
        return results[0] | whole

    def _run(self, side: Side, job: Mapping[str, Any], run: int) -> dict[str, Any]:
        path, out, err = (self.folder / f"{name}{run}" for name in ("job.json", "out.txt", "err.txt"))
        path.write_text(json.dumps(job), encoding="utf-8")
        threads = str(job["threads"])
        environ = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "CUDA_VISIBLE_DEVICES": ""}
        environ |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
        python = self.pythons.get(side.who, sys.executable)
        command = [python, str(ROOT / "scripts" / "peers" / f"bench_{side.script}.py"), str(path)]
        with out.open("wb") as answer, err.open("wb") as complaint:
            code, peak = watch(command, environ, answer, complaint, whole=job["work"] == "prepare")
        answers = [line for line in out.read_text(errors="replace").splitlines() if line.startswith("{")]
        if code or not answers:
            complaints = err.read_text(errors="replace")
            if self.config.debug:
                sys.stderr.write(complaints)
            said = [line for line in complaints.splitlines() if line.strip()]
            raise PeerError(said[-1] if said else f"ended with code {code}")
        result = json.loads(answers[-1])
        return result | {"peak_memory": max(result["peak_memory"], peak)}

    def _announce(self, groups: Iterable[Group]) -> None:
        """Say how long it will take, roughly: a step reaches a quarter of the ceiling, a measurement begins in 8 s."""
        seconds, measurements, ceiling = 0.0, 0, self.ceiling(None, "fp32") or math.inf
        for group in groups:
            if group.work == "prepare":
                count, each = self.config.rounds, self.config.pairs / 10_000
            elif group.work == "quality":
                operations, tokens = self.operations(group)
                steps = self.configs[group.model or ""].trainer.max_steps
                step = operations * min(1, self.config.batch_tokens / tokens) / (0.5 * ceiling)
                count, each = 2 * self.config.rounds, steps * step
            else:
                sides = self.sides(group)
                again = len({side.who for side in sides if not side.keep}) + sum(side.keep for side in sides)
                count = len(sides) + (self.config.rounds - 1) * again
                operations, whole = self.operations(group)
                part = self.config.decode_batch if group.work == "decode" else self.config.batch_tokens
                step = operations * min(1, part / whole) / (0.25 * ceiling)
                window = max(self.config.warmup, step) + max(self.config.seconds, 3 * step)
                each = 8 + step + (window if group.work != "start" else 0)
            measurements += count
            seconds += count * each
        if measurements:
            logger.info("%d measurements, about %d minutes", measurements, math.ceil(seconds / 60))

    # What comes of it.

    def operations(self, group: Group) -> tuple[float, float]:
        """Of all sentences that are trained on, or translated; and how many target tokens, or sentences, they are."""
        size, config = self.sizes[group.model or ""], self.config
        if group.work == "decode":
            steps = (config.beam, config.new_tokens)
            return decoding_operations(size, config.vocab_size, self.decode_lengths, *steps), len(self.decode_lengths)
        lengths = (self.source_lengths, self.target_lengths)
        return training_operations(size, config.vocab_size, *lengths), float(self.target_lengths.sum())

    def ceiling(self, model: str | None, precision: str) -> float | None:
        """Operations a second of matrix products in that precision, where they were measured."""
        results = self.results.get(Group("ceiling", model), {}).get(("torch", ceiling_precision(precision)))
        return statistics.median(rates(results)) if results else None

    def rows(self) -> list[dict[str, Any]]:
        groups = [group for work in WORKS for group in self.results if group.work == work and work in self.config.work]
        return [row for group in groups for row in self._rows(group)]

    def _rows(self, group: Group) -> Iterator[dict[str, Any]]:
        """A row for each side that was kept."""
        results = self.results[group]
        ours = best(results, "headcount")
        for (who, precision), measured in results.items():
            if not measured[0]["keep"] and measured is not best(results, who):
                continue
            median = statistics.median(rates(measured))
            row = {
                "work": group.work,
                "peer": who,
                "model": group.model,
                "precision": precision,
                WORKS[group.work][0]: median,
                "spread": [min(rates(measured)), max(rates(measured))],
                "peak_memory": max(each["peak_memory"] for each in measured),
                "rounds": len(measured),
                "versions": measured[0]["versions"],
            }
            if group.work in ("train", "decode", "lightning", "together") and ours:
                row["ratio"] = statistics.median(rates(ours)) / median  # so many times as fast is headcount
            if group.work in ("train", "decode"):
                row |= self._shares(group, precision, median)
                row["per_step"] = statistics.median(each["per_step"] for each in measured)
                row["other_precisions"] = {
                    other: statistics.median(rates(each))
                    for (name, other), each in results.items()
                    if name == who and other != precision and not each[0]["keep"]
                }
            if group.work == "prepare":
                row |= {"pairs": self.config.pairs, "pairs_kept": measured[0]["kept"]}
            if group.work == "quality" and ours:
                pairs = zip(rates(ours), rates(measured), strict=False)  # the last round may not be over
                row["difference"] = statistics.mean(ours - theirs for ours, theirs in pairs)
            yield row | self.common

    def _shares(self, group: Group, precision: str, rate: float) -> dict[str, float | None]:
        """Of the machine's rate of matrix products: those of a large square, and those of the model's own shapes."""
        operations, whole = self.operations(group)
        if group.work == "train":
            whole += float(self.source_lengths.sum())
        ceilings = {"ceiling": self.ceiling(None, precision), "own_shapes": self.ceiling(group.model, precision)}
        reached = rate * operations / whole
        return {f"share_of_{name}": reached / ceiling if ceiling else None for name, ceiling in ceilings.items()}

    def _save(self) -> None:
        if rows := self.rows():
            path = Path(self.config.out)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, json.dumps(rows, indent=2) + "\n")


def _settles_pieces(overrides: Iterable[str], config: DictConfig) -> bool:
    """Whether the number of pieces is asked for, or that of the built-in corpus, whose words are few."""
    asked = any(each.lstrip("+").startswith("data.vocab_size=") for each in overrides)
    return asked or str(config.data.corpus["_target_"]).endswith("grammar.Grammar")


def environment(peer: str, requirements: Sequence[str]) -> str:
    """The Python of the peer's own environment, made by pip where it is missing or its requirements have changed.

    Raises PeerError where that cannot be done.
    """
    if not requirements:
        return sys.executable
    folder, wanted = ENVIRONMENTS / peer, "".join(f"{line}\n" for line in requirements)
    python, stamp = folder / "bin" / "python", folder / "requirements.txt"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return str(python)
    logger.info("installing %s into %s (a minute or two)", peer, folder.relative_to(ROOT))
    shutil.rmtree(folder, ignore_errors=True)
    try:
        venv.create(folder, with_pip=True)
        options = ["--disable-pip-version-check", "--quiet", "--retries", "1", "--timeout", "20"]
        install = [str(python), "-m", "pip", "install", *options, *requirements]
        subprocess.run(install, capture_output=True, text=True, check=True)
    except (subprocess.CalledProcessError, OSError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        said = str(getattr(error, "stderr", "") or "").splitlines()
        errors = [line for line in said if line.startswith("ERROR")] or [str(error)]
        raise PeerError(f"it cannot be installed ({errors[-1].removeprefix('ERROR: ')})") from error
    write_text(stamp, wanted)
    return str(python)


def watch(command: Sequence[str], environ: Mapping[str, str], out: Any, err: Any, whole: bool) -> tuple[int, int]:
    """Run a command to its end: its code, and, where asked for, the most memory it and its children have held."""
    peak = 0
    with subprocess.Popen(
        command, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=err, process_group=0
    ) as process:
        try:
            while whole and process.poll() is None:
                peak = max(peak, group_memory(process.pid))
                time.sleep(0.1)
            return process.wait(), peak
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise


def group_memory(group: int) -> int:
    """Bytes held by the processes of a group, what they share counted once; 0 where the system does not tell."""
    total = 0
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):  # it may have ended meanwhile
            if os.getpgid(int(path.name)) == group:
                lines = (path / "smaps_rollup").read_text().splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    return total


def write_files(data: TranslationData, pairs: int, folder: Path) -> list[str]:
    """The corpus as text files, its training part repeated with a number behind until there are so many pairs; what
    makes scripts/train.py read them."""
    overrides = ["data=files", f"data.source={data.source_language}", f"data.target={data.target_language}"]
    for split in SPLITS:
        for side in ("source", "target"):
            lines = data.data[split][side][:]
            path = folder / f"{split}.{side}"
            with path.open("w", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in (repeated(lines, pairs) if split == "train" else lines))
            overrides.append(f"data.{split}_{side}={path}")
    return [*overrides, f"data.vocab_size={data.tokenizer.vocab_size}"]


def repeated(lines: Sequence[str], count: int) -> Iterator[str]:
    for index in range(count):
        turn, row = divmod(index, len(lines))
        yield f"{lines[row]} {turn}" if turn else lines[row]


# Arithmetic.


def rates(results: Iterable[Mapping[str, Any]]) -> list[float]:
    return [result["rate"] for result in results]


def best(results: Results, who: str) -> list[dict[str, Any]]:
    """The figures in the precision that was measured most often, which is the fastest of the first round."""
    own = [measured for (name, _), measured in results.items() if name == who]
    return max(own, key=lambda measured: (len(measured), statistics.median(rates(measured))), default=[])


def ceiling_precision(precision: str) -> str | None:
    """Which product of matrices a precision is to be compared with: fp32, bf16, or None where there is none."""
    if "bf16" in precision or "bfloat16" in precision:
        return "bf16"
    return "fp32" if "32" in precision else None


def training_operations(
    size: Mapping[str, Any], vocab_size: int, source_lengths: np.ndarray, target_lengths: np.ndarray
) -> float:
    """Operations of one training step over sentences of these lengths (ends counted), padding left out.

    With widths d and f, V words, E and D layers, and for each sentence S source and T target tokens, the
    multiply-adds forward are

        linear:     S E (4 d^2 + 2 d f)  +  T D (6 d^2 + 2 d f)  +  S D 2 d^2  +  T d V
        attention:  E 2 d S^2  +  D 2 d (T^2 + S T)

    where 4 d^2 are the projections of query, key, value and output, of which in cross-attention two read the source. A
    multiply-add is two operations, and the backward pass takes twice the forward one: six in all. T^2 counts the full
    square, as torch's flop counter does, though half of it is masked.
    """
    return 3 * _forward_operations(size, vocab_size, source_lengths, target_lengths)


def _forward_operations(
    size: Mapping[str, Any], vocab_size: int, source_lengths: np.ndarray, target_lengths: np.ndarray
) -> float:
    d, f, encoder, decoder = (size[name] for name in ("d_model", "d_feed_forward", "encoder_layers", "decoder_layers"))
    s, t = source_lengths.astype(float), target_lengths.astype(float)
    linear = s * encoder * (4 * d * d + 2 * d * f) + t * decoder * (6 * d * d + 2 * d * f)
    linear += s * decoder * 2 * d * d + t * d * vocab_size
    attention = encoder * 2 * d * s**2 + decoder * 2 * d * (t**2 + s * t)
    return float(2 * (linear + attention).sum())


def decoding_operations(
    size: Mapping[str, Any], vocab_size: int, source_lengths: np.ndarray, beam: int, steps: int
) -> float:
    """Operations of translating sentences of these lengths (ends counted), `steps` steps each, with keys and values
    kept, so that a step computes one position of every beam. The terms are those of `training_operations`; at step i a
    position looks at i target positions, itself included.
    """
    d, f, encoder, decoder = (size[name] for name in ("d_model", "d_feed_forward", "encoder_layers", "decoder_layers"))
    s, positions = source_lengths.astype(float), beam * steps
    encoding = s * (encoder * (4 * d * d + 2 * d * f) + decoder * 2 * d * d) + encoder * 2 * d * s**2
    looked_at = beam * steps * (steps + 1) / 2 + positions * s
    stepping = positions * (decoder * (6 * d * d + 2 * d * f) + d * vocab_size) + decoder * 2 * d * looked_at
    return float(2 * (encoding + stepping).sum())


def own_shapes(size: Mapping[str, Any], vocab_size: int, tokens: int) -> list[tuple[int, int, int]]:
    """The products [m, k] x [k, n] of a forward pass over `tokens` tokens a side, attention left out."""
    d, f, encoder, decoder = (size[name] for name in ("d_model", "d_feed_forward", "encoder_layers", "decoder_layers"))
    square, up, down = (tokens, d, d), (tokens, d, f), (tokens, f, d)
    return [square] * (4 * encoder + 8 * decoder) + [up, down] * (encoder + decoder) + [(tokens, d, vocab_size)]


# Tables.


def tables(rows: Sequence[Mapping[str, Any]], style: str) -> list[str]:
    """A table for each work, and for each model where several are compared, with a title above."""
    parts: list[str] = []
    for work, (_, title) in WORKS.items():
        ours = [row for row in rows if row["work"] == work]
        apart = dict.fromkeys(row["model"] if work in ("train", "decode") else "" for row in ours)
        for model in apart:
            cells = [_cells(row) for row in ours if not model or row["model"] == model]
            titled = f"{title[0].upper()}{title[1:]}{f', {model}' if model else ''}"
            headers = [name for name in cells[0] if any(each[name] for each in cells)]
            body = [[each[name] for name in headers] for each in cells]
            align = ["left" if name in ("", "model", "precision") else "right" for name in headers]
            parts += [f"### {titled}\n" if style == "pipe" else f"\n{titled}\n"]
            parts += [tabulate(body, headers, style, colalign=align, disable_numparse=True), ""]
    return parts


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    """A row as it is shown; a column that stays empty is left out."""
    work, (name, _) = row["work"], WORKS[row["work"]]
    unit, scale = UNITS[name]
    who = {"ctranslate2": "ctranslate2 (anchor)"}.get(row["peer"], row["peer"])
    if work == "ceiling":
        who = f"linear layers of {row['model']}" if row["model"] else f"{SQUARE} x {SQUARE}"
    elif work == "together":
        who = "one" if row["peer"] == "headcount" else row["peer"]
    elif work == "lightning":
        who = "Lightning" if row["peer"] == "headcount" else row["peer"]
    elif work == "prepare":
        who = f"{row['pairs']:,} pairs"
    ratio = row.get("ratio") if row["peer"] != "headcount" else None
    shares = {"of ceiling": row.get("share_of_ceiling"), "of own shapes": row.get("share_of_own_shapes")}
    return {
        "": who,
        "model": str(row["model"]) if work in ("lightning", "together", "start", "quality") else "",
        "precision": row["precision"] if work != "prepare" else "",
        unit: number(row[name] / scale),
        "spread": " to ".join(number(value / scale) for value in row["spread"]),
        "headcount is": f"{ratio:.2f} x" if ratio else "",
        "headcount's, on average": f"{row['difference']:+.4f}" if row.get("difference") else "",
        **{title: f"{share:.0%}" if share else "" for title, share in shares.items()},
        "memory": f"{row['peak_memory'] / 2**20:,.0f} MiB",
        "slower": ", ".join(f"{other} {number(value)}" for other, value in row.get("other_precisions", {}).items()),
    }


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def shown(value: float, figure: str) -> str:
    unit, scale = UNITS[figure]
    return f"{number(value / scale)} {unit}"


def page_parts(text: str) -> tuple[str, str]:
    """What stands before and behind the part that is written anew. Raises InputError for a page without markers."""
    begin, end = text.find(BEGIN), text.find(END)
    if not text.strip():
        return "# Performance\n\n", "\n"
    if begin < 0 or end < begin:
        raise InputError(f"the page has no lines {BEGIN} and {END}, between which the tables go")
    return text[:begin], text[end + len(END) :]


def page(text: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The page with the tables between the two markers; a new page where there is none."""
    before, after = page_parts(text)
    return f"{before}{BEGIN}\n\n{about(rows)}\n\n" + "\n".join(tables(rows, "pipe")) + f"\n{END}{after}"


def about(rows: Sequence[Mapping[str, Any]]) -> str:
    """Where the figures come from: commands, machine, date and versions."""
    first = rows[0]
    commands = "\n".join(dict.fromkeys(row["command"] for row in rows))
    versions = {name: value for row in rows for name, value in row["versions"].items() if value}
    said = ", ".join(f"{name} {value}" for name, value in sorted(versions.items()))
    return (
        f"```bash\n{commands}\n```\n\n"
        f"gave this on {first['date']}, on {first['threads']} thread{'s'[: first['threads'] > 1]} of "
        f"{first['processor']}, with {said}."
    )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends, too
    sys.argv[1:] = as_lists(sys.argv[1:])
    run()
