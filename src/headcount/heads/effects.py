"""RUN/heads/effects.nc: all that was measured of the heads of a run, as one xarray Dataset.

A variable is PART.NAME, `zero.right` of the part `ablation` being "ablation.zero.right", with dimensions such as
"ablation.setting" and "ablation.pair". xarray.open_dataset("runs/latest/heads/effects.nc", engine="scipy") reads it.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import xarray as xr

from headcount.errors import InputError, reason
from headcount.files import write_bytes
from headcount.heads.analysis import Arrays

FILE = "effects.nc"
NAMED = {  # dimensions of arrays, by name, with its part or without; the axes of others have numbers
    "head": "head",
    "step": "step",
    "sentence": "lengths tokens test_row source examples.reference whole",
    "setting": "off left setting_order",
    "pair": "row phenomenon grade base twin memory same_length floor.right floor.wrong right_tokens wrong_tokens",
    "setting pair": "right wrong twin_right twin_wrong",
    "setting sentence": "loss",
    "setting token": "reference",
    "setting sentence count": "counts",
    "point sentence count": "bleu_counts",
    "step setting sentence": "training.loss",
    "step setting pair": "training.right training.wrong",
    "sentence head": "importance.loss integrated value",
    "sentence head measure": "measures",
    "pair head": "margin integrated_margin patching",
    "head pair": "patched",
    "layer pair": "layers",
    "sender pair": "total direct",
    "path pair": "path",
    "permutation head": "marginal",
    "head sentence": "without",
}
DIMENSIONS = {name: tuple(dims.split()) for dims, names in NAMED.items() for name in names.split()}
WIDER = {"float16": "float32", "uint16": "int32", "int64": "int32"}  # what the file can hold


def write_parts(path: Path, parts: Mapping[str, Arrays]) -> None:
    """Write the arrays of all parts, by part and by name."""
    variables, sizes = {}, dict[str, int]()
    for part, name, value in ((part, name, value) for part, arrays in parts.items() for name, value in arrays.items()):
        known = DIMENSIONS.get(f"{part}.{name}", DIMENSIONS.get(name.rpartition(".")[2], ()))
        dims = []
        for axis, size in enumerate(value.shape):
            named = f"{part}.{known[axis]}" if len(known) == value.ndim else ""
            dims.append(named if named and sizes.setdefault(named, size) == size else f"{part}.{name}.{axis}")
        whole = {"type": str(value.dtype), "shape": value.shape}
        stored = value.astype(WIDER.get(str(value.dtype), value.dtype)) if value.size else np.zeros(())
        # An array without elements is in its attributes alone: the format has no empty dimensions.
        variables[f"{part}.{name}"] = xr.Variable(dims if value.size else (), stored, whole, {"_FillValue": None})
    path.parent.mkdir(exist_ok=True)
    write_bytes(path, bytes(xr.Dataset(variables).to_netcdf(engine="scipy")))


def read_parts(path: Path) -> dict[str, Arrays]:
    """The arrays of all parts, by part and by name; none without a file. Raises InputError for a damaged one."""
    found: dict[str, Arrays] = {}
    if not path.exists():
        return found
    try:
        with xr.open_dataset(path, engine="scipy", mask_and_scale=False, decode_times=False, cache=False) as dataset:
            for name, variable in dataset.variables.items():
                part, _, short = str(name).partition(".")
                whole = variable.attrs
                value = variable.to_numpy().astype(whole["type"])
                shape = tuple(np.atleast_1d(whole["shape"]))
                value = value.reshape(shape) if value.size == np.prod(shape) else np.zeros(shape, whole["type"])
                found.setdefault(part, {})[short] = value
    except Exception as error:
        raise InputError(f"{path}: not readable ({reason(error)}); remove it, and it is measured again") from error
    return found
