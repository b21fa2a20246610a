"""Arrays on disk: .npz files, written whole."""

import io
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from headcount.errors import InputError
from headcount.files import write_bytes


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
        with np.load(path) as arrays:
            return dict(arrays)
    except (OSError, ValueError, AttributeError, TypeError, KeyError, EOFError, BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: not readable ({error}); remove it, and it is measured again") from error
