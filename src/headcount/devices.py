"""Devices: the cores that torch uses, GPUs, precision, memory, and versions of libraries."""

import ctypes
import os
import platform
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headcount.errors import InputError
from headcount.processes import cores

MOST_THREADS = 1024  # a process that cannot have its threads is ended by OpenMP
MALLOPT = {-1: 2**31 - 1, -2: 2**26, -3: 2**30, -8: 1}  # M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_ARENA_MAX
# Of torch's allocators, CUDA, cuBLAS and the C++ library.
NO_MEMORY = re.compile(r"can't allocate memory|out of memory|bad_alloc|(ALLOC|allocation)_?failed", re.IGNORECASE)


def use_threads(number: int | None) -> None:
    """Let torch use that many processor cores; None: as many as it would, but no more than there are `cores`, since it
    does not read a container's quota. OMP_NUM_THREADS acts as it does without headcount. Raises InputError."""
    if number is None:
        if "OMP_NUM_THREADS" not in os.environ and torch.get_num_threads() > cores():
            torch.set_num_threads(cores())
        return
    if type(number) is not int or not 1 <= number <= MOST_THREADS:
        raise InputError(f"threads={number}: must be a number of processor cores from 1 to {MOST_THREADS}, or null")
    torch.set_num_threads(number)


def processor() -> str:
    """The processor's name, as far as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that the figures depend on."""
    packages = ("headcount", "torch", "pytorch-lightning", "datasets", "sentencepiece", "sacrebleu", "hydra-core")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def hardware(device: torch.device) -> dict[str, Any]:
    """The processor, the threads that torch uses of it, and the GPU if `device` is one, for metrics.json."""
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {"processor": processor(), "threads": torch.get_num_threads(), "gpu": gpu}


def choose_device(device: str) -> torch.device:
    """The torch device of that name; "auto" is a GPU if there is one. Raises InputError if it isn't there."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        number = torch.zeros(1, device=device)
        number.item()  # "meta" has shapes alone
        return number.device
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0].partition(". ")[0]  # of a device that torch was not built for, a page follows
        raise InputError(f"device={device}: not available here ({why}); try device=cpu") from error


def choose_precision(precision: str, accelerator: str) -> tuple[str, str]:
    """Lightning's name of the precision to use, and why. `auto` is bf16 where the hardware is faster with it."""
    if precision != "auto":
        return precision, "as asked for"
    on_gpu = accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()
    on_cpu = accelerator == "cpu" or (accelerator == "auto" and not on_gpu and not torch.backends.mps.is_available())
    if (on_gpu and torch.cuda.is_bf16_supported(including_emulation=False)) or (on_cpu and multiplies_bf16()):
        return "bf16-mixed", f"since this {'GPU' if on_gpu else 'processor'} multiplies bf16 natively"
    return "32-true", "since bf16 gains nothing here"


def multiplies_bf16() -> bool:
    """Whether this processor multiplies bf16 natively, so that products take half the time of float32 or less."""
    # torch before 2.13 has no such function
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def use_tf32() -> None:
    """Let a GPU round the factors of float32 products to TF32, with 10 bits of fraction."""
    if torch.cuda.is_available():
        torch.set_float32_matmul_precision("high")


def use_memory_again() -> None:
    """Let this process keep the memory it frees: to clear and map the same pages anew at each step takes about a tenth
    of a small model's training on a CPU. All threads share one heap: otherwise each thread of a search keeps its own.
    """
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "mallopt"):  # the GNU C library
        for parameter, value in MALLOPT.items():
            library.mallopt(parameter, value)


def cumulative_sum(x: Tensor, dim: int) -> Tensor:
    """`x.cumsum(dim)`. Where sums shall come in a fixed order (`trainer.deterministic`), a GPU's are made on the CPU,
    since torch has none of floats for a GPU."""
    if x.is_cuda and torch.are_deterministic_algorithms_enabled():
        return x.cpu().cumsum(dim).to(x.device)
    return x.cumsum(dim)


def refused_memory(error: BaseException) -> bool:
    """Whether an error says that memory could not be had."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and bool(NO_MEMORY.search(str(error))))


def no_memory(command: str = "train") -> str:
    """Memory that does not suffice: what to lower."""
    of_training = (
        "data.batch_tokens (and raise trainer.accumulate_grad_batches as much), data.max_length or the model's size "
        "(model.d_model, model.encoder_layers, tokenizer.vocab_size)"
    )
    lower = of_training if command == "train" else "the length of lines"
    return f"not enough memory; lower {lower}, in translation search.batch_tokens or search.beam"
