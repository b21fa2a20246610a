"""Processes of their own: their command line and environment, their file system, and their end."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import SCRIPTS

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPTS.parent / "src")}
DDP = ("trainer=ddp", "trainer.accelerator=cpu")
WAIT = 600  # seconds for a training to begin, on a crowded machine


def wait_until(true: Callable[[], object], seconds: float = WAIT, process: subprocess.Popen | None = None) -> float:
    """How many seconds it took until that was true; a process must live until then."""
    begin = time.monotonic()
    while not true():
        assert process is None or process.poll() is None
        assert time.monotonic() - begin < seconds
        time.sleep(0.05)
    return time.monotonic() - begin


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


def in_own_file_system(folder: Path, script: str) -> subprocess.CompletedProcess:
    """Run a shell script in a mount namespace of its own, where it may mount file systems under `folder`."""
    if not shutil.which("unshare") or subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    return subprocess.run(
        ["unshare", "-rm", "sh", "-ec", script],
        cwd=folder,
        env=ENVIRONMENT | {"PYTHON": sys.executable, "SCRIPTS": str(SCRIPTS)},
        capture_output=True,
        text=True,
        timeout=240,
    )


def errors_of(stderr: str) -> list[str]:
    return [line.removeprefix("error: ") for line in stderr.splitlines() if line.startswith("error: ")]


def words(options) -> str:
    return " ".join(f"'{option}'" for option in options)


def mount_or_skip(result: subprocess.CompletedProcess) -> None:
    if "mount:" in result.stderr:
        pytest.skip("file systems cannot be mounted here")
