"""Processes of their own: their command line and environment, and their end."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from conftest import SCRIPTS

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPTS.parent / "src")}
DDP = ("trainer=ddp", "trainer.accelerator=cpu")
WAIT = 600  # seconds for a training to begin, on a crowded machine


def wait_until(true: Callable[[], object], seconds: float = WAIT, process: subprocess.Popen | None = None) -> None:
    """Wait until that is true; a process must live until then."""
    begin = time.monotonic()
    while not true():
        assert process is None or process.poll() is None
        assert time.monotonic() - begin < seconds
        time.sleep(0.05)


def processes_in(folder: Path) -> list[int]:
    """All processes that work in a folder, but this one."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if link.readlink() == folder and int(link.parent.name) != os.getpid():
                found.append(int(link.parent.name))
        except OSError:  # it has ended, or belongs to somebody else
            continue
    return found
