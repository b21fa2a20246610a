"""Workloads of the benchmark, the units of their figures, and the peers that are compared."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import NamedTuple


class Work(NamedTuple):
    """A workload: the name of its figure in the rows, and the title of its table."""

    figure: str
    title: str


class Unit(NamedTuple):
    """How a figure is shown: the unit, and how much of the figure makes one of it."""

    name: str
    scale: float


WORKS = {
    "train": Work("tokens_per_second", "training"),
    "decode": Work("sentences_per_second", "translating"),
    "search": Work("sentences_per_second", "translating the test sentences of a trained run"),
    "ceiling": Work("operations_per_second", "products of matrices alone"),
    "lightning": Work("tokens_per_second", "headcount's steps with Lightning and without"),
    "together": Work("tokens_per_second", "training one model, or several at once"),
    "rows": Work("tokens_per_second", "training with the settings of each row of a study"),
    "crowded": Work("tokens_per_second", "training beside busy programs, one for two threads"),
    "profile": Work("milliseconds", "the parts of a training step, with the profiler on"),
    "start": Work("seconds", "from the end of Python's imports to the end of the first step"),
    "prepare": Work("seconds", "preparing text"),
    "plan": Work("seconds", "planning an epoch"),
    "quality": Work("loss", "validation loss at the end of training, a seed each round, computed in float32"),
}
NOT_ON_GPU = (
    ("decode", "torch_loop"),  # without a cache of keys and values it would take most of the time
    *(("train", "joeynmt"), ("decode", "joeynmt"), ("decode", "ctranslate2")),  # their scripts here use the CPU
)
ON_GPU = ("train", "decode", "ceiling", "together")  # works that a GPU can do
WITH_PEERS = ("train", "decode")  # works that peers do too
# Works that use the first of the models.
FIRST_MODEL_ONLY = ("lightning", "together", "rows", "crowded", "start", "quality")
OF_PAIRS = ("prepare", "plan")  # works on as many sentence pairs as asked for
WITH_CHILDREN = ("decode", "search", "prepare")  # processes of their own may do the work
UNITS = {
    "tokens_per_second": Unit("tokens/s", 1),
    "sentences_per_second": Unit("sentences/s", 1),
    "operations_per_second": Unit("Gop/s", 1e9),
    "seconds": Unit("s", 1),
    "milliseconds": Unit("ms", 1),
    "loss": Unit("nats a token", 1),
}
SQUARES = {"cpu": 2048, "cuda": 8192}  # rows and columns of the matrices whose product gives the machine's rate


class Case(NamedTuple):
    """What one table compares: a workload, at one size of model (None where there is no model)."""

    work: str
    model: str | None


@dataclass(frozen=True)
class Peer:
    """A program that is measured.

    precisions: what it can compute in, by work. The first round tries all; then the fastest goes on, or all of them
    where `keeps_all`. requirements: what pip installs for it; empty for what runs in headcount's own environment.
    """

    precisions: Mapping[str, tuple[str, ...]]
    requirements: tuple[str, ...] = ()
    keeps_all: bool = False


FP32_AND_BF16 = ("fp32", "bf16")
BOTH_WORKS = {"train": FP32_AND_BF16, "decode": FP32_AND_BF16}
TORCH = f"torch=={version('torch')}"  # headcount's own, the same for all
HEADCOUNT = Peer({"train": ("auto", "32-true"), "decode": ("float32", "bfloat16")})
PEERS = {
    "transformers": Peer(
        BOTH_WORKS, (TORCH, "transformers==5.23.0", "accelerate==1.15.0", "datasets==5.2.0", "numpy==2.4.6")
    ),
    # Its requirements name what it no longer needs, and miss what a newer setuptools has dropped.
    "joeynmt": Peer(BOTH_WORKS, (TORCH, "joeynmt==2.3.0", "setuptools<81", "numpy==2.4.6")),
    "torch_loop": Peer(BOTH_WORKS),
    "ctranslate2": Peer(
        {"decode": ("float32", "int8")}, ("ctranslate2==4.8.5", "setuptools<81", "numpy==2.4.6"), keeps_all=True
    ),
}
