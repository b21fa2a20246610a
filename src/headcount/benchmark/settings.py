"""Settings of the benchmark: lists on the command line, and a check of every value before anything is measured."""

import itertools
import json
import math
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from omegaconf import DictConfig, OmegaConf

from headcount.benchmark.results import is_complete, page_parts
from headcount.benchmark.workloads import ON_GPU, PEERS, WORKS
from headcount.decoding.search import MOST_ROWS
from headcount.decoding.shortlist import check_shortlist
from headcount.errors import InputError, need
from headcount.machine import MOST_THREADS
from headcount.run.directory import read_config
from headcount.run.place import CONF
from headcount.run.values import fits

# Settings that take a,b as [a,b], under each of their names; Hydra would look for `model` among the config groups.
LISTS = {"work": "work", "model": "models", "models": "models", "peers": "peers"}
LEAST_NUMBERS = dict.fromkeys(
    ("rounds", "batch_tokens", "sentences", "decode_batch", "beam", "pairs", "threads", "runs", "horizon"), 1
) | {"vocab_size": 8, "new_tokens": 2, "seconds": 0, "warmup": 0}
MOST = {"beam": MOST_ROWS, "threads": MOST_THREADS}
NULL_MEANS = {
    "threads": ", or null for as many as there are",
    "runs": ", or null for one on each thread",
    "horizon": ", or null",
}


def as_lists(arguments: Iterable[str]) -> list[str]:
    """The command line with work=a,b as work=[a,b]: Hydra would take the first form for a sweep."""
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
    wrong = [*_wrong_lists(config), *_wrong_numbers(config)]
    if config.device not in ("cpu", "cuda"):
        wrong.append(f"device={config.device}: must be cpu or cuda")
    elif config.device == "cuda":
        if not torch.cuda.is_available():
            wrong.append("device=cuda: no GPU found; give device=cpu")
        wrong += [f"work={work}: is for device=cpu" for work in config.work if work in WORKS and work not in ON_GPU]
    if not isinstance(config.compile, bool):
        wrong.append(f"compile={config.compile}: must be true or false")
    elif config.compile and "train" not in config.work:
        wrong.append("compile=true: is for work=train")
    for name, python in config.pythons.items():
        if python is not None and shutil.which(str(python)) is None:
            wrong.append(f"pythons.{name}={python}: no such program")
    wrong += _wrong_paths(config)
    if OmegaConf.is_list(config.work) and "search" in config.work:
        wrong += _wrong_run(config.run)
    if OmegaConf.is_list(config.work) and "rows" in config.work:
        wrong += _wrong_rows(config.rows)
    wrong += _wrong_shortlist(config.shortlist)
    if wrong:
        raise InputError("\n".join(wrong))
    if {"rows", "search"} & set(config.work):
        need("bench")


def rows_of(rows: str | Sequence[str]) -> dict[str, list[str]]:
    """Overrides of a training by the name of the row: those of a study, a row for each combination of the values that
    it sweeps but the seed; or a list of overrides, of which a row has one or, with blanks between them, several."""
    if not isinstance(rows, str):
        return {row: row.split() for row in rows}
    swept = yaml.safe_load((CONF / "study" / f"{rows}.yaml").read_text("utf-8"))["hydra"]["sweeper"]["params"]
    names = [name for name in swept if name != "seed"]
    values = itertools.product(*(str(swept[name]).split(",") for name in names))
    return {
        ", ".join(chosen): [f"study={rows}", *(f"{name}={value}" for name, value in zip(names, chosen, strict=True))]
        for chosen in values
    }


def _wrong_run(run: Any) -> list[str]:
    if not fits(run, str):
        return [f"run={run}: work=search translates with a trained run; give its directory"]
    try:
        read_config(Path(run))  # now, not after its corpus was prepared
    except InputError as error:
        return [str(error)]
    return []


def _wrong_shortlist(shortlist: Any) -> list[str]:
    if not OmegaConf.is_dict(shortlist):
        return [f"shortlist={shortlist}: must be {{frequent:N,per_piece:K}}"]
    try:
        check_shortlist("shortlist", shortlist)
    except ValueError as error:
        return [str(error)]
    return []


def _wrong_rows(rows: Any) -> list[str]:
    studies = sorted(path.stem for path in (CONF / "study").glob("*.yaml"))
    if rows in studies:
        return []
    if OmegaConf.is_list(rows) and len(rows) > 1 and all(fits(row, str) and "=" in row for row in rows):
        return []
    example = 'a list of two settings or more, such as ["model.num_heads=1","model.num_heads=8"] with its quotes'
    return [f"rows={rows}: must be {example}, or a study: {', '.join(studies)}"]


def _wrong_lists(config: DictConfig) -> list[str]:
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
    return wrong


def _wrong_numbers(config: DictConfig) -> list[str]:
    wrong = []
    for name, least in LEAST_NUMBERS.items():
        value, real = config[name], name in ("seconds", "warmup")
        null = NULL_MEANS.get(name, "")
        if value is None and null:
            continue
        if not fits(value, float if real else int):
            wrong.append(f"{name}={value}: must be {'a number' if real else 'a whole number'}{null}")
        elif not least <= value <= MOST.get(name, math.inf) or value == math.inf:
            most = f" and at most {MOST[name]:,}" if name in MOST else ""
            wrong.append(f"{name}={value}: must be {least} or more{most}{null}")
    return wrong


def _wrong_paths(config: DictConfig) -> list[str]:
    wrong = []
    for name in ("out", "table", "read"):
        value = config[name]
        if not fits(value, str if name == "out" else str | None) or value == "":
            wrong.append(f"{name}={value}: must be a path")
        elif name != "read" and value and Path(value).is_dir():
            wrong.append(f"{name}={value}: is a folder; give a file")
    if fits(config.table, str) and Path(config.table).is_file():  # now, not after an hour of measuring
        try:
            page_parts(Path(config.table).read_text(encoding="utf-8"))
        except (InputError, UnicodeDecodeError) as error:
            wrong.append(f"table={config.table}: {error}")
    return wrong


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The figures of an earlier run. Raises InputError."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"read={path}: not a file of figures ({error})") from error
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) and is_complete(row) for row in rows):
        raise InputError(f"read={path}: not a file of figures, as `out` of this command is; give one")
    return rows
