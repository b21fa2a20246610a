"""Weights as bytes: int8 with a scale for each row, or float32, little-endian, one after the other."""

from base64 import b64encode
from typing import Any

import numpy as np
from torch import Tensor

from headcount.errors import InputError

FORMS = ("int8", "float32")


class Tensors:
    """Weights that a page reads: `add` gives the number of each, and a weight that is shared is kept once.

    form: "int8" for matrices, round(127 w / max |w|) in each row after the scales max |w| / 127 of all rows in float32;
    vectors are float32. "float32" for all. Raises InputError for another form.
    """

    def __init__(self, form: str) -> None:
        if form not in FORMS:
            raise InputError(f"weights={form}: must be int8 (small) or float32 (exact)")
        self.form = form
        self.content = bytearray()
        self.places: list[list[Any]] = []  # offset in bytes, rows, columns, form
        self._numbers: dict[int, int] = {}

    def add(self, tensor: Tensor) -> int:
        """The number of a matrix or vector."""
        if id(tensor) not in self._numbers:
            self._numbers[id(tensor)] = len(self.places)
            self._append(tensor.detach().float().cpu().numpy())
        return self._numbers[id(tensor)]

    def _append(self, values: np.ndarray) -> None:
        form = self.form if values.ndim == 2 else "float32"
        rows, columns = values.shape if values.ndim == 2 else (1, values.size)
        self.places.append([len(self.content), rows, columns, form])
        if form == "int8":
            scales, values = quantised(values)
            self.content += scales.astype("<f4").tobytes()
        self.content += values.astype("i1" if form == "int8" else "<f4").tobytes()

    def packed(self) -> dict[str, Any]:
        """All of them for JSON."""
        return {"places": self.places, "bytes": b64encode(self.content).decode()}


def quantised(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales [row] and whole numbers -127 to 127 [row, column], whose product is nearly the matrix."""
    scales = np.abs(matrix).max(axis=1, initial=0).astype(np.float32) / np.float32(127)
    scales[scales == 0] = 1
    return scales, np.rint(matrix / scales[:, None]).clip(-127, 127)
