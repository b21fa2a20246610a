"""Measures of your own: a function from a notebook or a module becomes a part of the analysis.

@headcount.measure(needs="attention")
def beginning(attention):
    return attention.pattern.isel(key=0).mean("query")
"""

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from scipy import stats

from headcount.errors import InputError
from headcount.heads.analysis import Analysis, Arrays, Part
from headcount.heads.likelihood import Progress
from headcount.statistics.max_t import ERROR

SENTENCES = 200  # test sentences
PREFIX = "measure_"
_OWN: dict[str, Part] = {}

Measure = Callable[..., xr.DataArray]


def measure(function: Measure | None = None, *, needs: str = "") -> Any:
    """Register a measure of all heads by the name of the function, which gives an array [sentence, head] or [head].

    needs: what the function is given for the sources and targets of test sentences. "": the run, sources and targets.
    "loss": `run.loss` of the whole model and without each head. "attention": `run.attention`, once for each kind of
    heads. "cache": `run.cache`, once for each sentence; then it gives [head]. The command `heads` measures it, in the
    same process or with extensions=[MODULE], as the part measure_NAME, anew where its source changes; its means over
    sentences are rows of heads.csv, endpoint measure.NAME. Raises InputError.
    """
    if function is None:
        return partial(measure, needs=needs)
    if needs not in _GIVEN:
        raise InputError(f"needs={needs!r}: must be one of {', '.join(map(repr, _GIVEN))}")
    try:
        source = inspect.getsource(function)
    except OSError:  # typed at a prompt
        source = f"{function.__code__.co_code.hex()} {function.__code__.co_consts} {function.__code__.co_names}"
    name, version = f"{PREFIX}{function.__name__}", hashlib.sha256(f"{needs} {source}".encode()).hexdigest()
    _OWN[name] = Part(name, f"your measure {function.__name__}", partial(_measured, function, needs), version=version)
    return function


def own_parts() -> list[Part]:
    """The parts that are registered."""
    return list(_OWN.values())


def _measured(function: Measure, needs: str, analysis: Analysis, progress: Progress) -> Arrays:
    """value [sentence, head], and head, the names."""
    from headcount.heads.door import Run

    run = Run(**{field.name: getattr(analysis.run, field.name) for field in fields(analysis.run)})
    rows = analysis.test.rows.select(analysis.test.chosen(SENTENCES))
    found, heads = _GIVEN[needs](function, run, list(rows["source"]), list(rows["target"])), analysis.heads.labels
    if not isinstance(found, xr.DataArray) or not {"head"} <= set(found.dims) <= {"sentence", "head"}:
        shape = getattr(found, "dims", type(found).__name__)
        raise InputError(f"{function.__name__}: must give an xarray.DataArray [sentence, head] or [head], not {shape}")
    if "head" not in found.coords or set(found["head"].values.tolist()) - set(heads.tolist()):
        raise InputError(f"{function.__name__}: the coordinate `head` must have names of heads, such as {heads[0]}")
    found = found if "sentence" in found.dims else found.expand_dims("sentence")
    return {"value": found.transpose("sentence", "head").reindex(head=heads).to_numpy(), "head": heads}


def _of_loss(function: Measure, run: Any, *texts: Sequence[str]) -> xr.DataArray:
    return function(run.loss(*texts, off=[[], *([head] for head in run.heads.names)]))


def _of_attention(function: Measure, run: Any, *texts: Sequence[str]) -> xr.DataArray:
    kinds = dict.fromkeys(head.kind for head in run.heads.names)
    return xr.concat([function(run.attention(*texts, kind)).reset_coords(drop=True) for kind in kinds], "head")


def _of_cache(function: Measure, run: Any, *texts: Sequence[str]) -> xr.DataArray:
    return xr.concat([function(run.cache(*pair)) for pair in zip(*texts, strict=True)], "sentence")


_GIVEN: dict[str, Callable[..., xr.DataArray]] = {
    "": lambda function, run, *texts: function(run, *texts),
    "loss": _of_loss,
    "attention": _of_attention,
    "cache": _of_cache,
}


def extra_rows(parts: Mapping[str, Arrays]) -> Iterator[dict[str, Any]]:
    """Rows of heads.csv of your own measures: the mean over sentences, and its 95 % interval for itself."""
    for name, arrays in parts.items():
        for head, values in zip(arrays["head"].tolist(), arrays["value"].T, strict=True) if PREFIX in name else ():
            known = values[np.isfinite(values)].astype(np.float64)
            if not len(known):
                continue
            row = {"head": head, "endpoint": f"measure.{name.removeprefix(PREFIX)}", "column": "all", "unit": ""}
            row["estimate"] = float(known.mean())
            if len(known) > 1:
                half = stats.t.isf(ERROR / 2, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known))
                row |= {"low": row["estimate"] - half, "high": row["estimate"] + half}
            yield row
