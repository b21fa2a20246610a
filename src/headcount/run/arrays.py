"""Arrays on disk: .npz files, written whole."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
