"""Arrays that processes share: one makes them, all map the same files into memory."""

import contextlib
import errno
import json
import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from filelock import FileLock

from headcount.errors import InputError, reason
from headcount.files import new_directory, replacing, waiting, write_text

logger = logging.getLogger(__name__)

UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)
NAMES = "names.json"  # the arrays of a folder, so that one from which some were removed is not taken for whole


def shared_arrays(folder: Path, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays of a folder by name, memory-mapped and not to be written; where it is not whole, it is made.

    make: computes the arrays. Of several processes, also of several machines, one calls it, and the others wait.
    Where it may not write, or has no room to, a process has the arrays for itself.
    Raises InputError for a damaged file, OSError.
    """
    while True:
        try:
            if not (files := _files(folder)):
                _make_once(folder, make)
                continue
        except OSError as error:
            if error.errno not in UNWRITABLE:
                raise
            logger.info("%s cannot be written (%s): this process has it for itself", folder, reason(error))
            return make()
        try:
            return {path.stem: _mapped(path) for path in files}
        except FileNotFoundError:  # removed in between
            continue


def _make_once(folder: Path, make: Callable[[], dict[str, np.ndarray]]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with waiting(FileLock(folder.parent / "making.lock"), "another process makes arrays to be shared"):
        if not _files(folder):
            remove(folder)
            _make(folder, make)


def _make(folder: Path, make: Callable[[], dict[str, np.ndarray]]) -> None:
    with new_directory(folder) as new:
        arrays = make()
        for name, array in arrays.items():
            with replacing(new / f"{name}.npy") as beside, beside.open("wb") as file:
                np.save(file, array)
        write_text(new / NAMES, json.dumps(list(arrays)) + "\n")


def _files(folder: Path) -> list[Path]:
    """The files of a folder, one an array; empty if one is missing."""
    try:
        files = [folder / f"{name}.npy" for name in json.loads((folder / NAMES).read_text(encoding="utf-8"))]
    except (FileNotFoundError, ValueError):
        return []
    return files if all(path.is_file() for path in files) else []


def _mapped(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r").view(np.ndarray)
    except (ValueError, EOFError) as error:
        raise InputError(f"{path} is damaged ({error}); delete {path.parent}, it will be made again") from error


def remove(folder: Path) -> None:
    """Remove what `shared_arrays` made, at once for all other processes. Mappings that are open stay valid."""
    hidden = folder.with_name(f".{folder.name}.{os.getpid()}")
    with contextlib.suppress(OSError):  # another process was first
        folder.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def remove_older(folder: Path, seconds: float) -> None:
    """Remove what `shared_arrays` made in a folder more than so many seconds ago. Mappings that are open stay valid."""
    for path in folder.glob("*/"):
        try:
            if path.stat().st_mtime < time.time() - seconds:
                remove(path)
        except FileNotFoundError:
            continue  # another process was first
