"""What this machine does well, and how its libraries are asked to do it."""

import ctypes
import os
import signal
import sys

import torch

END_WITH_PARENT = "HEADCOUNT_END_WITH_PARENT"  # in the environment of a process that should
PR_SET_PDEATHSIG = 1  # see prctl(2)
# Parameters of mallopt and their values in bytes: see malloc.h of the GNU C library.
M_TRIM_THRESHOLD = (-1, 2**31 - 1)
M_TOP_PAD = (-2, 2**26)
M_MMAP_THRESHOLD = (-3, 2**30)
M_ARENA_MAX = (-8, 1)  # one heap, and not a number of bytes


def end_with_parent() -> None:
    """Where the process that started this one asks for it, let Linux send this one SIGTERM when that one is killed."""
    if END_WITH_PARENT in os.environ and sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def use_memory_again() -> None:
    """Let this process keep the memory it frees.

    A training step allocates and frees the same tensors over and over. Given back to the system each time, their pages
    are cleared and mapped anew, which takes about a tenth of a small model's training on a CPU. All threads share one
    heap: the threads of a search would each keep one of their own, beside all that training has left free.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:  # the GNU C library's
        for parameter, value in (M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_ARENA_MAX):
            mallopt(parameter, value)


def use_faster_products() -> None:
    """Let torch take oneDNN's float32 products where they are exact: on newer AMD processors they take half the time.

    torch takes them only if float32 products may be rounded to bf16, so whether they are is seen on one. A GPU would
    round, too, and leaves little to the processor.
    """
    if torch.cuda.is_available() or not multiplies_bf16():
        return
    x = torch.linspace(-1, 1, 256 * 256).view(256, 256)
    torch.set_float32_matmul_precision("medium")
    if (x @ x - (x.double() @ x.double()).float()).abs().max() > 1e-3:  # bf16 is a hundred times as far off
        torch.set_float32_matmul_precision("highest")


def multiplies_bf16() -> bool:
    """Whether this processor multiplies bf16 natively, so that products take half the time of float32 or less."""
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()  # torch before 2.13 does not tell
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
