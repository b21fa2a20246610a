"""Arrays on disk: .npz files, written whole."""

import io
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from headcount.errors import InputError
from headcount.files import write_bytes


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write a whole .npz file, for `numpy.load`."""
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    write_bytes(path, content.getvalue())


def padded(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """One array [part, ...] of all, which are as large as the largest, and zero or empty beyond their own size."""
    shape = tuple(max(sizes) for sizes in zip(*(part.shape for part in parts), strict=True))
    whole = np.zeros((len(parts), *shape), dtype=np.result_type(*parts))
    for row, part in zip(whole, parts, strict=True):
        row[tuple(map(slice, part.shape))] = part
    return whole


def read_arrays(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays of a file of results; None where there is none. Raises InputError for a damaged one."""
    if not path.exists():
        return None
    try:
        with np.load(path) as arrays:
            return dict(arrays)
    except (OSError, ValueError, AttributeError, TypeError, KeyError, EOFError, BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: not readable ({error}); remove it, and it is measured again") from error
