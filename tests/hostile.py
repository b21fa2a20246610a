"""Hostile run directories: what somebody can put into one, and a limit on the time and memory of what opens it."""

import contextlib
import json
import os
import pickle
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import torch
from limits import memory, seconds
from omegaconf import OmegaConf
from safetensors.torch import load_file, save_file
from sentencepiece import sentencepiece_model_pb2

from headcount.training.seal import seal

Spoil = Callable[[Path], object]
MEMORY = 2**30  # bytes beyond what this process has: ten times what a normal command takes
ADDRESSES = 8 * 2**30  # where an allocation ends in any case; a file that is mapped has addresses and takes no memory
SECONDS = 300  # a crowded machine is slow
GIGABYTES = 3 * 2**30


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Raises Late or AssertionError for a block that takes too long, or too much memory."""
    with memory(MEMORY, ADDRESSES), seconds(SECONDS):
        yield


def setting(name: str, value: object) -> Spoil:
    def spoil(run: Path) -> None:
        config = OmegaConf.load(run / "config.yaml")
        OmegaConf.update(config, name, value, merge=False, force_add=True)
        OmegaConf.save(config, run / "config.yaml")

    return spoil


def text(name: str, content: str) -> Spoil:
    return lambda run: (run / name).write_text(content, encoding="utf-8")


def added(name: str, content: str) -> Spoil:
    return lambda run: (run / name).write_text((run / name).read_text(encoding="utf-8") + content, encoding="utf-8")


def pipe(name: str) -> Spoil:
    def spoil(run: Path) -> None:
        (run / name).unlink()
        os.mkfifo(run / name)

    return spoil


def link(name: str, target: str) -> Spoil:
    def spoil(run: Path) -> None:
        (run / name).unlink()
        (run / name).symlink_to(target)

    return spoil


def sparse(name: str, start: bytes = b"") -> Spoil:
    """A file of gigabytes that takes none on disk."""

    def spoil(run: Path) -> None:
        (run / name).write_bytes(start)
        os.truncate(run / name, GIGABYTES)

    return spoil


class Payload:
    """Creates the file `ran` where it is unpickled."""

    def __init__(self, run: Path) -> None:
        self.ran = run.parents[1] / "ran"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mknod, (str(self.ran),)


def pickled(name: str) -> Spoil:
    """A checkpoint, with a right checksum, that runs code where it is unpickled."""

    def spoil(run: Path) -> None:
        state = {"global_step": 8, "state_dict": {"model.x": Payload(run)}}
        torch.save(state, run / name)
        if name.endswith(".ckpt"):
            seal(run / name)

    return spoil


def bare_pickle(name: str) -> Spoil:
    return lambda run: (run / name).write_bytes(pickle.dumps(Payload(run)))


def checkpoint(change: Callable[[dict], None]) -> Spoil:
    """The run's checkpoint with a change, and a right checksum."""

    def spoil(run: Path) -> None:
        path = run / "checkpoints" / "last.ckpt"
        state = torch.load(path, weights_only=True)
        change(state)
        torch.save(state, path)
        seal(path)
        (run / "checkpoints" / "last-1.ckpt").unlink(missing_ok=True)

    return spoil


def of_adamw(state: dict) -> list[dict]:
    """The moments of each parameter that AdamW updates."""
    return [each for each in state["optimizer_states"][0]["state"].values() if "exp_avg" in each]


def other_moments(state: dict) -> None:
    for each in of_adamw(state):
        each["exp_avg"] = torch.zeros(3)


def moments_without_memory(state: dict) -> None:
    """One number each, in memory, for as many as the weights have: a fused kernel would write beyond it."""
    for each in of_adamw(state):
        each["exp_avg"] = torch.zeros(1).expand(each["exp_avg"].shape)


def count(callback: str, name: str, value: object) -> Callable[[dict], None]:
    """A number that a callback counts with."""

    def change(state: dict) -> None:
        (key,) = (key for key in state["callbacks"] if key.startswith(callback))
        state["callbacks"][key][name] = value

    return change


def text_for_loops(state: dict) -> None:
    state["loops"]["fit_loop"]["epoch_loop.scheduler_progress"]["total"]["ready"] = "x"


def nested_list() -> list:
    """2^60 lists, in memory 60."""
    node: list = []
    for _ in range(60):
        node = [node, node]
    return node


def compressed_checkpoint(run: Path) -> None:
    """A checkpoint whose members are compressed a thousandfold."""
    path = run / "checkpoints" / "last.ckpt"
    with ZipFile(path, "w", ZIP_DEFLATED) as archive, archive.open("archive/data.pkl", "w", force_zip64=True) as member:
        for _ in range(64):
            member.write(bytes(2**20))
    seal(path)
    (run / "checkpoints" / "last-1.ckpt").unlink(missing_ok=True)


def weights(change: Callable[[dict], object]) -> Spoil:
    def spoil(run: Path) -> None:
        tensors = load_file(run / "model.safetensors")
        tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        change(tensors)
        save_file(tensors, run / "model.safetensors")

    return spoil


def first(tensors: dict) -> str:
    """The name of a matrix that is not square."""
    return next(name for name, tensor in tensors.items() if tensor.dim() == 2 and tensor.shape[0] != tensor.shape[1])


def header(size: int, content: object) -> Spoil:
    """A weights file that begins with a header of that claimed size."""
    return lambda run: (run / "model.safetensors").write_bytes(struct.pack("<Q", size) + json.dumps(content).encode())


def lying_header(run: Path) -> None:
    """A weights file whose header claims tensors of gigabytes that are not there."""
    tensors = load_file(run / "model.safetensors")
    sizes = {
        name: {
            "dtype": "F32",
            "shape": [2**20, GIGABYTES // 2**22],
            "data_offsets": [place * GIGABYTES, (place + 1) * GIGABYTES],
        }
        for place, name in enumerate(tensors)
    }
    content = json.dumps(sizes).encode()
    header(len(content), sizes)(run)


def large_tensor(run: Path) -> None:
    """A weights file, gigabytes of nothing, with one tensor more than the model has."""
    tensors = load_file(run / "model.safetensors")
    sizes: dict[str, object] = {}
    place = 0
    for name, tensor in tensors.items():
        sizes[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [place, place + 4 * tensor.numel()]}
        place += 4 * tensor.numel()
    sizes["junk"] = {"dtype": "F32", "shape": [GIGABYTES // 4], "data_offsets": [place, place + GIGABYTES]}
    content = json.dumps(sizes).encode()
    header(len(content), sizes)(run)
    os.truncate(run / "model.safetensors", 8 + len(content) + place + GIGABYTES)


def tokenizer(change: Callable[[object], None]) -> Spoil:
    def spoil(run: Path) -> None:
        model = sentencepiece_model_pb2.ModelProto.FromString((run / "tokenizer.model").read_bytes())
        change(model)
        (run / "tokenizer.model").write_bytes(model.SerializeToString())

    return spoil


def rules(model) -> None:
    """Rules of normalisation whose addresses lead out of them."""
    model.normalizer_spec.precompiled_charsmap = struct.pack("<I", 1024) + b"\xff" * 1024


def fewer_pieces(model) -> None:
    del model.pieces[300:]


def more_pieces(model) -> None:
    for number in range(1000):
        model.pieces.add(piece=f"x{number}", score=-1.0)


def shadowed_pieces(model) -> None:
    model.pieces[300].piece = model.pieces[301].piece


def other_numbers(model) -> None:
    model.pieces[0].piece, model.pieces[2].piece = model.pieces[2].piece, model.pieces[0].piece


BOMB = "bomb:\n  a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"  {new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefghijkl", "bcdefghijklm", strict=True)
)
DEEP = "[" * 100_000
LONG = "9" * 5000
MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)>"

# What is spoiled, and words ("or" others) of the line of each command that it keeps from working; "": it keeps none.
CONFIG: dict[str, tuple[Spoil, str]] = {
    "aliases": (added("config.yaml", BOMB), "line 1"),
    "an alias of itself": (added("config.yaml", "loop: &a [*a]\n"), "is an alias"),
    "deep lists": (added("config.yaml", f"deep: {DEEP}\n"), "not a readable config"),
    "deep groups": (added("config.yaml", f"deep: {'[' * 100}{']' * 100}\n"), "nested too deeply"),
    "a long number": (added("config.yaml", f"long: {LONG}\n"), "not a readable config"),
    "no date": (added("config.yaml", "day: 2001-13-45\n"), "not a readable config"),
    "a date": (added("config.yaml", "day: 2001-01-01\n"), "date is no value"),
    "an object": (added("config.yaml", "x: !!python/object/apply:os.mknod [ran]\n"), "not a readable config"),
    "bytes": (added("config.yaml", "x: !!binary AAAA\n"), "bytes is no value"),
    "a list as a name": (added("config.yaml", "? [a]\n: b\n"), "not a readable config"),
    "null as a name": (added("config.yaml", "null: b\n"), "not a readable config"),
    "not UTF-8": (lambda run: (run / "config.yaml").write_bytes(b"\xff\xfe\x00"), "not a readable config"),
    "megabytes": (added("config.yaml", "x: y\n" * 2**17), "has more than"),
    "a pipe for a config": (pipe("config.yaml"), "config.yaml"),
    "a device for a config": (link("config.yaml", "/dev/zero"), "config.yaml"),
    "a resolver": (setting("data.hide_source", "${run_directory:null}"), "must be resolved"),
    "a resolver deep inside": (setting("study.constant", ["${oc.env:HOME}"]), "must be resolved"),
    "a later version": (setting("model.new_setting", 3), "model.new_setting: no such setting"),
    "a class of a later version": (setting("model._target_", "headcount.model.new.New"), "does not build there"),
    "a class of others": (setting("model._target_", "os.system"), "does not build there"),
    "a function of others": (setting("search", {"_target_": "builtins.eval", "x": "1"}), "does not build there"),
    "a class within": (setting("model.x", {"_target_": "os.system"}), "does not build there"),
    "arguments": (setting("model._args_", ["x"]), "model._args_"),
    "a part of a model": (setting("model._partial_", True), "model._partial_"),
    "no recursion": (setting("model._recursive_", False), "model._recursive_"),
    "a path as a language": (setting("data.target", "../../x"), "data.target"),
    "a wide model": (setting("model.d_model", 2**40), "model.d_model"),
    "a model that is too wide": (setting("model.d_model", 2**16), "size mismatch"),
    "wide layers": (setting("model.d_feed_forward", 2**20), "size mismatch"),
    "a million layers": (setting("model.encoder_layers", 10**6), "model.encoder_layers"),
    "more layers": (setting("model.encoder_layers", 100), "no weights for"),
    "positions": (setting("model.max_positions", 10**12), "model.max_positions"),
    "a million positions": (setting("model.max_positions", 10**6), ""),
    "a number beyond numbers": (setting("model.d_feed_forward", 2**70), "model.d_feed_forward"),
    "not a number": (setting("model.dropout", float("nan")), "model.dropout"),
    "text for a number": (setting("model.d_model", "x" * 30), "model.d_model"),
    "a group for a number": (setting("model.d_model", {"a": 1}), "model"),
    "a wide beam": (setting("search.beam", 10**9), "search.beam"),
    "endless translations": (setting("search.max_ratio", 10**9), "search.max_ratio"),
    "translations of no length": (setting("search.max_ratio", float("nan")), "search.max_ratio"),
}
WEIGHTS: dict[str, tuple[Spoil, str]] = {
    "a pickle for weights": (bare_pickle("model.safetensors"), "no weights can be read"),
    "a checkpoint for weights": (pickled("model.safetensors"), "no weights can be read"),
    "a header of gigabytes": (header(GIGABYTES, {}), "no weights can be read"),
    "a header of 2^63 bytes": (header(2**63, {}), "no weights can be read"),
    "a header without tensors": (header(2, {}), "no weights"),
    "tensors that are not there": (lying_header, "no weights can be read"),
    "a tensor of gigabytes": (large_tensor, ""),
    "gigabytes of zeros": (sparse("model.safetensors"), "no weights can be read"),
    "another shape": (weights(lambda all: all.update({first(all): all[first(all)].T.contiguous()})), "size mismatch"),
    "a missing tensor": (weights(lambda all: all.pop(first(all))), "no weights for"),
    "whole numbers": (weights(lambda all: all.update({first(all): all[first(all)].long()})), "no numbers for"),
    "not a number": (weights(lambda all: all[first(all)].fill_(float("nan"))), "finite"),
    "a pipe for weights": (pipe("model.safetensors"), "model.safetensors"),
    "a device for weights": (link("model.safetensors", "/dev/zero"), "model.safetensors"),
}
TOKENIZER: dict[str, tuple[Spoil, str]] = {
    "garbage": (text("tokenizer.model", "garbage"), "not a sentencepiece model"),
    "zeros": (lambda run: (run / "tokenizer.model").write_bytes(bytes(1000)), "tokenizer.model"),
    "an endless number": (lambda run: (run / "tokenizer.model").write_bytes(b"\xff" * 10**6), "tokenizer.model"),
    "a pickle": (bare_pickle("tokenizer.model"), "not a sentencepiece model"),
    "rules": (tokenizer(rules), "has its own rules"),
    "fewer pieces": (tokenizer(fewer_pieces), "size mismatch"),
    "more pieces": (tokenizer(more_pieces), "size mismatch"),
    "a piece twice": (tokenizer(shadowed_pieces), "tokenizer.model"),
    "other numbers": (tokenizer(other_numbers), "pad, unk, bos, eos"),
    "gigabytes of a tokenizer": (sparse("tokenizer.model"), "has more than"),
    "a pipe for a tokenizer": (pipe("tokenizer.model"), "tokenizer.model"),
    "a device for a tokenizer": (link("tokenizer.model", "/dev/zero"), "tokenizer.model"),
}
METRICS: dict[str, tuple[Spoil, str]] = {
    "deep figures": (text("metrics.json", DEEP), "metrics.json: not readable JSON"),
    "a long figure": (text("metrics.json", f'{{"seed": {LONG}}}'), "metrics.json: not readable JSON"),
    "a list of figures": (text("metrics.json", "[]"), "metrics.json: not the figures"),
    "a pipe for figures": (pipe("metrics.json"), "metrics.json"),
    "a device for figures": (link("metrics.json", "/dev/zero"), "metrics.json"),
    "gigabytes of figures": (sparse("metrics.json", b'{"a": "'), "metrics.json"),
}
UNREADABLE = "damaged or no weights can be read"  # resumed, or as weights
CHECKPOINT: dict[str, tuple[Spoil, str]] = {
    "a payload": (pickled("checkpoints/last.ckpt"), UNREADABLE),
    "a bare pickle": (bare_pickle("checkpoints/last.ckpt"), UNREADABLE),
    "compressed": (compressed_checkpoint, UNREADABLE),
    "lists of lists": (checkpoint(lambda state: state.update(loops=nested_list())), UNREADABLE),
    "text for a step": (checkpoint(lambda state: state.update(global_step="x")), "damaged"),
    "no weights": (checkpoint(lambda state: state.update(state_dict={})), "no weights for"),
    "a number for weights": (checkpoint(lambda state: state.update(state_dict=3)), "no weights can be read"),
    "no optimizer": (checkpoint(lambda state: state.pop("optimizer_states")), "does not fit"),
    "moments of other shapes": (checkpoint(other_moments), "does not fit"),
    "moments without memory": (checkpoint(moments_without_memory), "does not fit"),
    "text for tokens": (checkpoint(count("TrainingProgress", "tokens", "x")), "does not fit"),
    "endless seconds": (checkpoint(count("TrainingProgress", "seconds", float("inf"))), "does not fit"),
    "text for skipped steps": (checkpoint(lambda state: state["skipped_steps"].update(total="x")), "does not fit"),
    "text for a count of Lightning's": (checkpoint(text_for_loops), "does not fit"),
    "a step below zero": (checkpoint(lambda state: state.update(global_step=-5)), "damaged"),
    "text for callbacks": (checkpoint(lambda state: state.update(callbacks="x")), "does not fit"),
    "text for loops": (checkpoint(lambda state: state.update(loops={"fit_loop": "x"})), "does not fit"),
}


def moved_out(name: str) -> Spoil:
    """What was there, or an empty folder, lies elsewhere; a link leads to it."""

    def spoil(run: Path) -> None:
        elsewhere = run.parents[1] / "elsewhere"
        elsewhere.mkdir()
        if (run / name).exists():
            (run / name).rename(elsewhere / "moved")
        elif "." in Path(name).name:
            (elsewhere / "moved").touch()
        else:
            (elsewhere / "moved").mkdir()
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).symlink_to(elsewhere / "moved")

    return spoil


def instead(name: str, make: Callable[[Path], object]) -> Spoil:
    """Something else in place of a file or folder."""

    def spoil(run: Path) -> None:
        if (run / name).is_dir():
            shutil.rmtree(run / name)
        (run / name).unlink(missing_ok=True)
        (run / name).parent.mkdir(exist_ok=True)
        make(run / name)

    return spoil


PLACES = (
    *(
        "config.yaml",
        "model.safetensors",
        "tokenizer.model",
        "metrics.json",
        "train.log",
        ".lock",
        "job.json",
        "job.log",
    ),
    *("test.src.en", "test.hyp.de", "test.ref.de", "test.pairs.npz"),
    *("logs", "logs/metrics.csv", "logs/metrics.before.csv"),
    *("checkpoints", "checkpoints/last.ckpt", "checkpoints/last-1.ckpt", "checkpoints/average"),
    *("checkpoints/average/00000008.safetensors", "heads", "heads/ablation.npz"),
    *("../sweep.json", "../report.html", "../report.md", "../plots"),
)
# A pipe can be read for ever, and what is written through a link lies outside of the run.
PLACED: dict[str, tuple[Spoil, str]] = {
    f"{name} {what}": (spoil(name), Path(name).name)
    for what, spoil in {"elsewhere": moved_out, "a pipe": lambda name: instead(name, os.mkfifo)}.items()
    for name in PLACES
}
CURVES: dict[str, tuple[Spoil, str]] = {
    "a cell of 200 kB": (added("logs/metrics.csv", f"0,3,{'9' * 200_000},,,,\n"), "no learning curves"),
    "a step of 5,000 digits": (added("logs/metrics.csv", f"0,{LONG},1,1,1,1,1\n"), ""),
    "gigabytes of curves": (sparse("logs/metrics.csv", b"epoch,step\n"), "metrics.csv"),
}


def _logger(**settings: object) -> dict[str, object]:
    """TensorBoard's logger in a config."""
    target = "pytorch_lightning.loggers.TensorBoardLogger"
    return {"_target_": target, "_partial_": True, "name": "logs", "version": "", **settings}


# Settings that act where the run is resumed, and words of the line; "" where that works.
SETTINGS: list[tuple[str, object, str]] = [
    ("threads", 10**9, "threads=1000000000"),
    ("data.workers", 10**6, "data.workers=1000000"),
    ("trainer.devices", 10**6, "trainer.devices=1000000"),
    ("trainer.num_nodes", 10**6, "trainer.num_nodes=1000000"),
    ("trainer.accumulate_grad_batches", 10**9, "too few for 1000000000 batches"),
    ("trainer.default_root_dir", "../..", "trainer.default_root_dir"),
    ("trainer.plugins", ["os.system"], "trainer"),
    ("trainer.callbacks", ["os.system"], "trainer.callbacks"),
    ("trainer.profiler", "advanced", "trainer.profiler=advanced: would have no effect"),
    ("trainer.strategy", "deepspeed", "trainer"),
    ("trainer", None, "trainer"),
    ("data.batch_tokens", 10**18, ""),
    ("data.root", "../../elsewhere", "data.root=../../elsewhere"),
    ("data.root", "/dev", "/dev"),
    ("data.directory", "../../elsewhere", ""),
    ("data.tests", {"../x": "a.txt"}, "data.tests"),
    ("data.source", "../x", "data.source"),
    ("averaging.last", 10**12, ""),
    ("validation", None, "validation"),
    ("validation.every", 10**18, ""),
    ("validation.samples", 10**12, ""),
    ("checkpoint", None, "checkpoint"),
    ("checkpoint.keep", list(range(2000)), ""),
    ("optimizer", None, "optimizer"),
    ("optimizer.betas", [1], "optimizer"),
    ("optimizer._target_", "os.system", "does not build there"),
    ("schedule.warmup_steps", 10**400, "schedule.warmup_steps"),
    ("logger", None, "logger"),
    ("logger.csv", None, "logger.csv"),
    ("logger.csv", "x", "logger.csv"),
    ("logger.csv.name", "../..", "logger.csv"),
    ("logger.csv.version", "../../../x", "logger.csv"),
    ("logger.csv.save_dir", "../..", ""),
    ("logger.csv.prefix", "../../x", ""),
    ("logger.csv.flush_logs_every_n_steps", 0, "flush_logs_every_n_steps=0"),
    ("logger.tb", _logger(name="../../x"), "logger.tb"),
    ("logger.tb", _logger(sub_dir="../../../x"), "logger.tb"),
    ("logger.tb", _logger(log_dir="../../../x"), "logger: TensorBoardLogger cannot begin"),
    ("logger.tb", _logger(filename_suffix="/../../../x"), "logger: TensorBoardLogger cannot begin"),
    ("bleu_tokenizer", "../../x", "bleu_tokenizer"),
    ("resume", "../x", ""),
    ("init_from", "../x", ""),
    ("trust", ["os.system"], ""),
    ("hydra", {"run": {"dir": "../x"}}, ""),
]
RESUMED: dict[str, tuple[Spoil, str]] = {
    f"{name}={str(value)[-60:]}": (setting(name, value), words) for name, value, words in SETTINGS
}


def data_that_lies(run: Path) -> None:
    """Figures of heads whose arrays claim gigabytes."""
    (run / "heads").mkdir(exist_ok=True)
    head = {"descr": "<f8", "fortran_order": False, "shape": (GIGABYTES // 8,)}
    with ZipFile(run / "heads" / "ablation.npz", "w") as archive, archive.open("key.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, head)
