"""Arrays that processes share: one makes them, all map the same files into memory."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from filelock import FileLock

from headcount.errors import InputError
from headcount.files import new_directory, replacing, waiting


def shared_arrays(folder: Path, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays of a folder by name, memory-mapped and not to be written; where there is none, it is made.

    make: computes the arrays. Of several processes, also of several machines, one calls it, and the others wait.
    Raises InputError for a damaged file, OSError.
    """
    while True:
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with waiting(FileLock(folder.parent / "making.lock"), "another process makes arrays to be shared"):
                if not folder.is_dir():
                    with new_directory(folder) as new:
                        for name, array in make().items():
                            with replacing(new / f"{name}.npy") as beside, beside.open("wb") as file:
                                np.save(file, array)
        try:
            return {path.stem: _mapped(path) for path in folder.glob("*.npy")}
        except FileNotFoundError:  # removed in between
            continue


def _mapped(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r").view(np.ndarray)
    except (ValueError, EOFError) as error:
        raise InputError(f"{path} is damaged ({error}); delete {path.parent}, it will be made again") from error


def remove_older(folder: Path, seconds: float) -> None:
    """Remove what `shared_arrays` made in a folder more than so many seconds ago. Who has it mapped, keeps it."""
    for path in folder.glob("*/"):
        try:
            if path.stat().st_mtime < time.time() - seconds:
                shutil.rmtree(path, ignore_errors=True)
        except FileNotFoundError:
            continue  # another process was first
