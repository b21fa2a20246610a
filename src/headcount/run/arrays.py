"""Arrays on disk: .npz files, written whole, and read with bounds, since others may have made them."""

import io
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from headcount.errors import InputError
from headcount.files import require_regular, write_bytes

MOST_BYTES = 2**30  # of all arrays of a file, in memory


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write a whole .npz file, for `numpy.load`."""
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    write_bytes(path, content.getvalue())


def read_arrays(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays of a file of results; None where there is none. Raises InputError for a damaged one."""
    if not path.exists():
        return None
    try:
        require_regular(path)
        with ZipFile(path) as members:
            if sum(each.file_size for each in members.infolist()) > MOST_BYTES:
                raise ValueError(f"more than {MOST_BYTES:,} bytes in memory")
        arrays = np.load(path)
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            raise ValueError("a single array")
        with arrays:
            return dict(arrays)
    except (OSError, ValueError, KeyError, EOFError, MemoryError, BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: not readable ({error}); remove it, and it is measured again") from error
