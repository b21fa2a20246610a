"""Measure the speed of headcount and of others at the same work; `--help` lists what can be set.

This script prepares the data, starts each measurement in a process of its own (scripts/peers/), in turn, and makes
tables of what comes back.
"""

import json
import logging
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from hydra import compose
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from tabulate import tabulate

from headcount.data.module import TranslationData
from headcount.errors import InputError
from headcount.run.config import build_data
from headcount.run.directory import processor, write_text
from headcount.run.script import CONF, main
from headcount.run.types import fits

logger = logging.getLogger("headcount.bench")

ROOT = CONF.parent
ENVIRONMENTS = ROOT / ".venv-bench"
# Settings that take a,b as [a,b], under any of their names; Hydra would look for `model` among the config groups.
LISTS = {"work": "work", "model": "models", "models": "models", "peers": "peers"}
SIZES = ("d_model", "encoder_layers", "decoder_layers", "d_feed_forward", "num_heads", "dropout")
WORKS = {
    "train": "training",
    "decode": "translating",
    "ceiling": "products of matrices alone",
    "lightning": "headcount's steps with Lightning and without",
    "start": "from start to first step",
}
SQUARE = 2048  # rows and columns of the product that stands for the machine
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"  # of the part of a page that is written anew


@dataclass(frozen=True)
class Peer:
    """Who is measured.

    precisions: what it can compute in; where `every_precision` is False, all are tried in the first round, and the
    fastest goes on. requirements: what pip installs for it; none for what runs in headcount's own environment.
    """

    precisions: tuple[str, ...]
    requirements: tuple[str, ...] = ()
    works: tuple[str, ...] = ("train", "decode")
    every_precision: bool = False

    def precisions_for(self, work: str) -> tuple[str, ...]:
        return self.precisions


HALF = ("fp32", "bf16")
HEADCOUNT = Peer(("auto", "32-true"))
PEERS = {
    "transformers": Peer(
        HALF, ("torch==2.13.0", "transformers==5.23.0", "accelerate==1.15.0", "datasets==5.2.0", "numpy==2.4.6")
    ),
    # Its requirements name what it no longer needs, and miss what a newer setuptools has dropped.
    "joeynmt": Peer(HALF, ("torch==2.13.0", "joeynmt==2.3.0", "setuptools<81", "numpy==2.4.6")),
    "torch_loop": Peer(HALF),
    "ctranslate2": Peer(
        ("float32", "int8"), ("ctranslate2==4.8.5", "setuptools<81", "numpy==2.4.6"), ("decode",), every_precision=True
    ),
}


class PeerError(Exception):
    """A measurement ended without a figure; the message says why."""


@main("bench")
def run(config: DictConfig) -> None:
    check(config)
    overrides = list(HydraConfig.get().overrides.task)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(config, overrides, Path(folder))
        bench.measure_all()
    sys.stdout.write("\n".join(tables(bench.rows, "simple")) + "\n")
    if config.table:
        path = Path(config.table)
        write_text(path, page(path.read_text(encoding="utf-8") if path.exists() else "", bench.rows))


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


def model_names() -> list[str]:
    return sorted(path.stem for path in (CONF / "model").glob("*.yaml") if path.stem != "default")


def check(config: DictConfig) -> None:
    """Raises InputError with a line for each setting that is wrong."""
    wrong = []
    for name, known in {"work": list(WORKS), "models": model_names(), "peers": list(PEERS)}.items():
        values = config[name]
        if not OmegaConf.is_list(values):
            wrong.append(f"{name}={values}: must be a list, such as {name}={','.join(known[:2])}")
            continue
        wrong += [f"{name}={value}: there are {', '.join(known)}" for value in values if value not in known]
        if not values and name != "peers":
            wrong.append(f"{name}=[]: nothing to do; there are {', '.join(known)}")
    least = {"rounds": 1, "vocab_size": 8, "batch_tokens": 1, "sentences": 1, "decode_batch": 1, "beam": 1}
    least |= {"new_tokens": 2, "seconds": 0, "warmup": 0, "threads": 1}
    for name, least_value in least.items():
        value, real = config[name], name in ("seconds", "warmup")
        if value is None and name == "threads":
            continue
        if not fits(value, float if real else int):
            wrong.append(f"{name}={value}: must be {'a number' if real else 'a whole number'}")
        elif value < least_value:
            wrong.append(f"{name}={value}: must be {least_value} or more")
    for name, python in config.pythons.items():
        if python is not None and shutil.which(str(python)) is None:
            wrong.append(f"pythons.{name}={python}: no such program")
    for name in ("out", "table"):
        if not fits(config[name], str if name == "out" else str | None):
            wrong.append(f"{name}={config[name]}: must be a path")
    if wrong:
        raise InputError("\n".join(wrong))


class Bench:
    """All measurements of one command, and the rows that come of them."""

    def __init__(self, config: DictConfig, overrides: Sequence[str], folder: Path) -> None:
        self.config = config
        self.folder = folder
        self.threads = config.threads or len(os.sched_getaffinity(0))
        self.rows: list[dict[str, Any]] = []
        self.pythons: dict[str, str] = {"headcount": sys.executable}
        self.ceilings: dict[tuple[str | None, str], float] = {}
        self.common = {
            "date": date.today().isoformat(),
            "processor": processor(),
            "threads": self.threads,
            "command": shlex.join(["python", "scripts/bench.py", *sys.argv[1:]]),
        }
        pieces = [] if _gives_pieces(overrides, config) else [f"data.vocab_size={config.vocab_size}"]
        chosen = [each for each in overrides if each.lstrip("+~").startswith(("data=", "data."))]
        self.data_overrides = [*chosen, *pieces, f"data.batch_tokens={config.batch_tokens}"]
        self.models = {name: self._compose(name) for name in config.models}
        data = build_data(next(iter(self.models.values())))
        data.prepare_data()
        if data.tokenizer.vocab_size > config.vocab_size:
            raise InputError(
                f"vocab_size={config.vocab_size}: fewer than the corpus has pieces, which are "
                f"{data.tokenizer.vocab_size}; raise it, or give a smaller data.vocab_size"
            )
        self.lengths, self.decode_lengths = self._write_arrays(data)

    def _compose(self, model: str) -> DictConfig:
        return compose("train", [*self.data_overrides, f"model={model}"])

    def _write_arrays(self, data: TranslationData) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
        """The piece numbers for everybody; lengths of the training pairs, and of what is translated, ends counted."""
        pairs, test = data.data["train"], data.data["test"]
        source, target = pairs["source_ids"][:], pairs["target_ids"][:]
        test_sources = [ids for ids in test["source_ids"][:] if len(ids)]
        decode = (test_sources + source)[: self.config.sentences]
        arrays: dict[str, np.ndarray] = {}
        for name, rows in {"source": source, "target": target, "decode": decode}.items():
            arrays[f"{name}_pieces"] = np.concatenate([np.asarray(row, dtype=np.int32) for row in rows])
            arrays[f"{name}_offsets"] = np.cumsum([0, *map(len, rows)])
        np.savez(self.folder / "work.npz", **arrays)
        lengths = {name: np.diff(arrays[f"{name}_offsets"]) + 1 for name in ("source", "target", "decode")}
        return (lengths["source"], lengths["target"]), lengths["decode"]

    def measure_all(self) -> None:
        works = [work for work in WORKS if work in self.config.work]
        if {"train", "decode", "ceiling"} & set(works):
            self._measure_ceilings()
        for name in self.config.peers:
            if set(PEERS[name].works) & set(works):
                self._find_python(name)
        for work in works:
            for model in self.models:
                if work in ("train", "decode"):
                    self._compare(work, model)
                elif work == "lightning":
                    self._measure_lightning(model)
                elif work == "start":
                    self._measure_start(model)

    def _find_python(self, peer: str) -> None:
        """Make the peer's environment where there is none; say so and leave the peer out where that fails."""
        try:
            given = self.config.pythons.get(peer)
            self.pythons[peer] = given or environment(peer, PEERS[peer].requirements)
        except PeerError as error:
            logger.warning("%s is left out: %s", peer, error)

    # One measurement.

    def measure(self, script: str, python: str, job: Mapping[str, Any]) -> dict[str, Any]:
        """What scripts/peers/bench_<script>.py answers. Raises PeerError."""
        path = self.folder / "job.json"
        path.write_text(json.dumps(self._job() | dict(job)), encoding="utf-8")
        threads = str(self.threads)
        environ = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "CUDA_VISIBLE_DEVICES": ""}
        environ |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
        command = [python, str(ROOT / "scripts" / "peers" / f"bench_{script}.py"), str(path)]
        process = subprocess.run(command, env=environ, capture_output=True, text=True)
        answers = [line for line in process.stdout.splitlines() if line.startswith("{")]
        if process.returncode or not answers:
            said = [line for line in process.stderr.splitlines() if line.strip()]
            if self.config.debug:
                sys.stderr.write(process.stderr)
            raise PeerError(said[-1] if said else f"ended with code {process.returncode}")
        return json.loads(answers[-1])

    def _job(self) -> dict[str, Any]:
        config = self.config
        same = ("seconds", "warmup", "vocab_size", "batch_tokens", "decode_batch", "beam", "new_tokens")
        return {
            **{name: config[name] for name in same},
            "threads": self.threads,
            "arrays": str(self.folder / "work.npz"),
            "mean_target": float(self.lengths[1].mean()),
            "smoothing": 0.1,
            "clip": 1.0,
            "overrides": self.data_overrides,
        }

    def _size(self, model: str) -> dict[str, Any]:
        return {"name": model, **{name: self.models[model].model[name] for name in SIZES}}

    def _say(self, what: str, round_: int, who: str, precision: str, figure: str) -> None:
        logger.info("%-16s round %d of %d  %-14s %-10s %s", what, round_, self.config.rounds, who, precision, figure)

    # What is measured.

    def _compare(self, work: str, model: str) -> None:
        """headcount and its peers in turn, as often as there are rounds."""
        tried = {"headcount": HEADCOUNT, **{name: PEERS[name] for name in self.config.peers if name in self.pythons}}
        tried = {name: peer for name, peer in tried.items() if work in peer.works}
        left = {name: list(peer.precisions) for name, peer in tried.items()}
        results: dict[tuple[str, str], list[dict[str, Any]]] = {}  # by peer and precision
        for round_ in range(1, self.config.rounds + 1):
            for name in tried:
                for asked in list(left[name]):
                    if round_ == 1 and (name, asked) in results:  # "auto" has come to the same
                        left[name].remove(asked)
                        continue
                    job = {"work": work, "peer": name, "model": self._size(model), "precision": asked}
                    result = self._try(name, f"{work} {model}", round_, job)
                    if result is None:
                        left[name].remove(asked)
                        continue
                    results.setdefault((name, result["precision"]), []).append(result | {"asked": asked})
                if round_ == 1 and not tried[name].every_precision:
                    left[name] = _fastest(results, name)
        self._add_rows(work, model, results, {name: left[name] for name in tried})

    def _try(self, name: str, what: str, round_: int, job: Mapping[str, Any]) -> dict[str, Any] | None:
        """One measurement, said in one line; None where a peer fails. Raises InputError where headcount does."""
        unit = "tokens/s" if job["work"] == "train" else "sentences/s"
        try:
            with Console(stderr=True).status(f"{what}, {name} {job['precision']}"):
                result = self.measure(name, self.pythons[name], job)
        except PeerError as error:
            if name == "headcount":
                raise InputError(f"{what}, {name}: {error}") from error
            logger.warning("%s, %s %s is left out: %s", what, name, job["precision"], error)
            return None
        self._say(what, round_, name, result["precision"], f"{_number(result['rate'])} {unit}")
        return result

    def _add_rows(
        self,
        work: str,
        model: str,
        results: Mapping[tuple[str, str], list[dict[str, Any]]],
        kept: Mapping[str, list[str]],
    ) -> None:
        figure = "tokens_per_second" if work == "train" else "sentences_per_second"
        ours = statistics.median(_rates(_best(results, "headcount")))
        size = self._size(model)
        if work == "train":
            operations = training_operations(size, self.config.vocab_size, *self.lengths)
            per_unit = operations / float(sum(side.sum() for side in self.lengths))
        else:
            operations = decoding_operations(
                size, self.config.vocab_size, self.decode_lengths, self.config.beam, self.config.new_tokens
            )
            per_unit = operations / len(self.decode_lengths)
        for (name, precision), measured in results.items():
            if measured[0]["asked"] not in kept[name]:
                continue
            median, spread = summary(_rates(measured))
            others = {p: summary(_rates(each))[0] for (n, p), each in results.items() if n == name and p != precision}
            ceiling = self.ceilings.get((None, ceiling_precision(precision)))
            shapes = self.ceilings.get((model, ceiling_precision(precision)))
            row = {
                "work": work,
                "peer": name,
                "model": model,
                "precision": precision,
                figure: median,
                "spread": spread,
                "ratio": ours / median,
                "share_of_ceiling": median * per_unit / ceiling if ceiling else None,
                "share_of_own_shapes": median * per_unit / shapes if shapes else None,
                "peak_memory": max(each["peak_memory"] for each in measured),
                "rounds": len(measured),
                "per_step": statistics.median(each["per_step"] for each in measured),
                "other_precisions": others,
                "anchor": name == "ctranslate2",
                "versions": measured[0]["versions"],
            }
            self._add(row)
        self._save()

    def _measure_ceilings(self) -> None:
        shapes: dict[str | None, list[tuple[int, int, int]]] = {None: [(SQUARE, SQUARE, SQUARE)]}
        for model in self.models:
            shapes[model] = own_shapes(self._size(model), self.config.vocab_size, self.config.batch_tokens)
        for model, products in shapes.items():
            for precision in HALF:
                job = {"shapes": products, "precision": precision, "seconds": min(5, self.config.seconds)}
                rounds = []
                for _ in range(self.config.rounds):
                    try:
                        rounds.append(self.measure("ceiling", sys.executable, job))
                    except PeerError as error:
                        raise InputError(f"ceiling: {error}") from error
                median, spread = summary(_rates(rounds))
                self.ceilings[model, precision] = median
                if "ceiling" not in self.config.work:
                    continue
                what = f"ceiling {model or 'square'}"
                self._say(what, self.config.rounds, "torch", precision, f"{median / 1e9:,.0f} Gop/s")
                self._add(
                    {
                        "work": "ceiling",
                        "peer": "torch",
                        "model": model,
                        "precision": precision,
                        "operations_per_second": median,
                        "spread": spread,
                        "shapes": products,
                        "peak_memory": max(each["peak_memory"] for each in rounds),
                        "versions": rounds[0]["versions"],
                    }
                )
        self._save()

    def _measure_lightning(self, model: str) -> None:
        """The same steps by Lightning's trainer and by a bare loop, in turn."""
        sides: dict[str, list[dict[str, Any]]] = {"train": [], "lightning": []}
        for round_ in range(1, self.config.rounds + 1):
            for work, results in sides.items():
                job = {"work": work, "model": self._size(model), "precision": "auto"}
                who = "Lightning" if work == "train" else "bare loop"
                try:
                    result = self.measure("headcount", sys.executable, job)
                except PeerError as error:
                    raise InputError(f"lightning {model}, {who}: {error}") from error
                results.append(result)
                rate = f"{_number(result['rate'])} tokens/s"
                self._say(f"lightning {model}", round_, who, result["precision"], rate)
        lightning, bare = (summary(_rates(results)) for results in sides.values())
        overheads = [100 * (b["rate"] / a["rate"] - 1) for a, b in zip(sides["train"], sides["lightning"], strict=True)]
        for name, (median, spread), results in (
            ("headcount", lightning, sides["train"]),
            ("bare loop", bare, sides["lightning"]),
        ):
            self._add(
                {
                    "work": "lightning",
                    "peer": name,
                    "model": model,
                    "precision": results[0]["precision"],
                    "tokens_per_second": median,
                    "spread": spread,
                    "ratio": lightning[0] / median,
                    "overhead_percent": 100 * (bare[0] / lightning[0] - 1),
                    "overhead_spread": [min(overheads), max(overheads)],
                    "peak_memory": max(each["peak_memory"] for each in results),
                    "rounds": len(results),
                    "versions": results[0]["versions"],
                }
            )
        self._save()

    def _measure_start(self, model: str) -> None:
        """Seconds until the first step is done; once more than there are rounds, since the first run fills caches."""
        results = []
        for round_ in range(self.config.rounds + 1):
            job = {"work": "start", "model": self._size(model), "precision": "auto"}
            try:
                result = self.measure("headcount", sys.executable, job)
            except PeerError as error:
                raise InputError(f"start {model}: {error}") from error
            if round_:
                results.append(result)
                self._say(f"start {model}", round_, "headcount", result["precision"], f"{result['rate']:.2f} s")
        median, spread = summary(_rates(results))
        self._add(
            {
                "work": "start",
                "peer": "headcount",
                "model": model,
                "precision": results[0]["precision"],
                "seconds": median,
                "spread": spread,
                "peak_memory": max(each["peak_memory"] for each in results),
                "rounds": len(results),
                "versions": results[0]["versions"],
            }
        )
        self._save()

    def _add(self, row: dict[str, Any]) -> None:
        self.rows.append(row | self.common)

    def _save(self) -> None:
        path = Path(self.config.out)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(self.rows, indent=2) + "\n")


def _gives_pieces(overrides: Iterable[str], config: DictConfig) -> bool:
    """Whether the size of the vocabulary is settled: asked for, or that of the built-in corpus, whose words are few."""
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
    logger.info("installing %s into %s", peer, folder.relative_to(ROOT))
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    install = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet", *requirements]
    result = subprocess.run(install, capture_output=True, text=True)
    if result.returncode:
        shutil.rmtree(folder)
        errors = [line for line in result.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
        raise PeerError(f"it cannot be installed ({errors[-1].removeprefix('ERROR: ')})")
    write_text(stamp, wanted)
    return str(python)


# Arithmetic.


def summary(rates: Sequence[float]) -> tuple[float, list[float]]:
    """Median and spread, [smallest, largest]."""
    return statistics.median(rates), [min(rates), max(rates)]


def _rates(results: Iterable[Mapping[str, Any]]) -> list[float]:
    return [result["rate"] for result in results]


def _of(results: Mapping[tuple[str, str], list], name: str) -> list[list]:
    return [measured for (peer, _), measured in results.items() if peer == name]


def _best(results: Mapping[tuple[str, str], list[dict[str, Any]]], name: str) -> list[dict[str, Any]]:
    """The figures in the precision that was measured most often, which is the fastest of the first round."""
    return max(_of(results, name), key=lambda measured: (len(measured), statistics.median(_rates(measured))))


def _fastest(results: Mapping[tuple[str, str], list[dict[str, Any]]], name: str) -> list[str]:
    """The precision to go on with, as it was asked for; none where all have failed."""
    measured = [each[0] for each in _of(results, name)]
    return [max(measured, key=lambda result: result["rate"])["asked"]] if measured else []


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
    """A table for each work and model, with a title above."""
    parts: list[str] = []
    for work, what in WORKS.items():
        ours = [row for row in rows if row["work"] == work]
        if not ours:
            continue
        groups = [ours] if work in ("ceiling", "lightning", "start") else _by_model(ours)
        for group in groups:
            model = f", {group[0]['model']}" if work in ("train", "decode") else ""
            title = f"{what[0].upper()}{what[1:]}{model}"
            headers, body = _table(work, group)
            parts += [f"### {title}\n" if style == "pipe" else f"\n{title}\n"]
            align = ["right" if index > 1 else "left" for index in range(len(headers))]
            parts += [tabulate(body, headers, style, colalign=align, disable_numparse=True), ""]
    return parts


def _by_model(rows: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    return [[row for row in rows if row["model"] == model] for model in dict.fromkeys(row["model"] for row in rows)]


def _table(work: str, rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    if work in ("train", "decode"):
        figure, unit = ("tokens_per_second", "tokens/s") if work == "train" else ("sentences_per_second", "sentences/s")
        headers = ["", "precision", unit, "spread", "headcount is", "of fp32/bf16 ceiling", "memory"]
        return headers, [
            [
                f"{row['peer']} (anchor)" if row["anchor"] else row["peer"],
                row["precision"],
                _number(row[figure]),
                _spread(row["spread"]),
                "" if row["peer"] == "headcount" else f"{row['ratio']:.2f} x",
                f"{row['share_of_ceiling']:.0%}" if row["share_of_ceiling"] else "",
                f"{row['peak_memory'] / 2**20:,.0f} MiB",
            ]
            for row in sorted(rows, key=lambda row: row["ratio"])
        ]
    if work == "ceiling":
        return ["shapes", "precision", "Gop/s", "spread"], [
            [
                f"linear layers of {row['model']}" if row["model"] else f"{SQUARE} x {SQUARE}",
                row["precision"],
                _number(row["operations_per_second"] / 1e9),
                _spread([rate / 1e9 for rate in row["spread"]]),
            ]
            for row in rows
        ]
    if work == "lightning":
        return ["model", "loop", "precision", "tokens/s", "spread", "overhead of Lightning"], [
            [
                row["model"],
                "Lightning" if row["peer"] == "headcount" else row["peer"],
                row["precision"],
                _number(row["tokens_per_second"]),
                _spread(row["spread"]),
                f"{row['overhead_percent']:.1f} %" if row["peer"] == "headcount" else "",
            ]
            for row in rows
        ]
    return ["model", "precision", "seconds", "spread"], [
        [row["model"], row["precision"], f"{row['seconds']:.2f}", _spread(row["spread"])] for row in rows
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _spread(values: Sequence[float]) -> str:
    return " to ".join(_number(value) for value in values)


def page(text: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The page with the tables in place of what stands between the two markers; a new page where there is none.

    Raises InputError for a page without the markers.
    """
    begin, end = text.find(BEGIN), text.find(END)
    if not text.strip():
        before, after = "# Performance\n\n", "\n"
    elif begin < 0 or end < begin:
        raise InputError(f"table: the page has no lines {BEGIN} and {END}, between which the tables go")
    else:
        before, after = text[:begin], text[end + len(END) :]
    return f"{before}{BEGIN}\n\n{about(rows)}\n\n" + "\n".join(tables(rows, "pipe")) + f"\n{END}{after}"


def about(rows: Sequence[Mapping[str, Any]]) -> str:
    """Where the figures come from: command, machine, date and versions."""
    first = rows[0]
    versions = {name: value for row in rows for name, value in row["versions"].items() if value}
    said = ", ".join(f"{name} {value}" for name, value in sorted(versions.items()))
    return (
        f"```bash\n{first['command']}\n```\n\n"
        f"gave this on {first['date']}, on {first['threads']} thread{'s'[: first['threads'] > 1]} of "
        f"{first['processor']}, with {said}."
    )


if __name__ == "__main__":
    sys.argv[1:] = as_lists(sys.argv[1:])
    run()
