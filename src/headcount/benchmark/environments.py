"""Python environments of the peers, and the processes that run in them."""

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from headcount.files import show, write_text
from headcount.run.place import CHECKOUT

logger = logging.getLogger(__name__)

ENVIRONMENTS = (CHECKOUT or Path()) / ".venv-bench"


class PeerError(Exception):
    """A measurement ended without a figure; the message says why."""


def environment(peer: str, requirements: Sequence[str]) -> str:
    """The Python of the peer's own environment, installed by pip where it is missing or its requirements have changed.

    Raises PeerError where that fails.
    """
    if not requirements:
        return sys.executable
    folder, wanted = ENVIRONMENTS / peer, "".join(f"{line}\n" for line in requirements)
    python, stamp = folder / "bin" / "python", folder / "requirements.txt"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return str(python)
    logger.info("installing %s into %s (a minute or two)", peer, show(folder.absolute()))
    shutil.rmtree(folder, ignore_errors=True)
    try:
        venv.create(folder, with_pip=True)
        options = ["--disable-pip-version-check", "--quiet", "--retries", "1", "--timeout", "20"]
        install = [str(python), "-m", "pip", "install", *options, *requirements]
        subprocess.run(install, capture_output=True, text=True, check=True)
    except (subprocess.CalledProcessError, OSError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        output = str(getattr(error, "stderr", "") or "").splitlines()
        errors = [line for line in output if line.startswith("ERROR")] or [str(error)]
        raise PeerError(f"it cannot be installed ({errors[-1].removeprefix('ERROR: ')})") from error
    write_text(stamp, wanted)
    return str(python)


def watch(
    command: Sequence[str],
    environ: Mapping[str, str],
    out: IO[bytes],
    err: IO[bytes],
    with_children: bool,
    running: list[int],
) -> tuple[int, int]:
    """Run a command to its end: its exit code and, if asked `with_children`, the most memory it and they have held.

    running: where its process group is listed meanwhile, for `kill`: only the main thread gets signals and Ctrl-C.
    """
    peak = 0
    with subprocess.Popen(
        command, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=err, process_group=0
    ) as process:
        running.append(process.pid)
        while with_children and process.poll() is None:
            peak = max(peak, group_memory(process.pid))
            time.sleep(0.5)  # a look takes some 25 ms
        code = process.wait()
        running.remove(process.pid)
        return code, peak


def kill(group: int) -> None:
    """Kill the processes of a group, if there are any left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def last_complaint(errors: Path) -> str | None:
    """The last line that a process has written to its standard error; None where there is none."""
    lines = [line for line in errors.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else None


def group_memory(group: int) -> int:
    """Bytes held by the processes of a group, shared memory counted once; 0 on systems without /proc."""
    total = 0
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):  # it may have ended meanwhile
            if os.getpgid(int(path.name)) == group:
                lines = (path / "smaps_rollup").read_text().splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    return total


@contextlib.contextmanager
def busy_programs(count: int) -> Iterator[None]:
    """Programs that each keep a core busy, in sessions of their own as those of another terminal are."""
    with contextlib.ExitStack() as running:
        for _ in range(count):
            busy = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
            running.callback(busy.wait)
            running.callback(busy.kill)
        yield
