"""Measures of your own: a function in a notebook or a module becomes a part of the analysis.

@headcount.measure
def beginning(run, sources, targets):
    return run.attention(sources, targets, "cross").pattern.isel(key=0).mean("query")
"""

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import partial

import numpy as np
import xarray as xr
from scipy import stats

from headcount.errors import InputError
from headcount.heads.analysis import Analysis, Arrays, Part
from headcount.heads.likelihood import Progress
from headcount.heads.results import Row
from headcount.statistics.max_t import ERROR

SENTENCES = 200  # test sentences
PREFIX = "measure_"
Measure = Callable[..., xr.DataArray]
_OWN: dict[str, Part] = {}


def measure(function: Measure) -> Measure:
    """Register a measure of heads by the name of the function: it is given the run (see `headcount.open_run`), sources
    and targets, and gives an array [sentence, head] or [head] whose coordinate `head` has the names of all heads or
    some. The command `heads` of the same process, or with extensions=[MODULE], measures it as the part measure_NAME,
    anew where its source changes, and writes the means over sentences into heads.csv, endpoint measure.NAME."""
    try:
        source = inspect.getsource(function)
    except OSError:  # typed at a prompt
        source = f"{function.__code__.co_code.hex()} {function.__code__.co_consts} {function.__code__.co_names}"
    name, version = f"{PREFIX}{function.__name__}", hashlib.sha256(source.encode()).hexdigest()
    _OWN[name] = Part(name, f"your measure {function.__name__}", partial(_measured, function), version=version)
    return function


def own_parts() -> list[Part]:
    """The parts that are registered."""
    return list(_OWN.values())


def _measured(function: Measure, analysis: Analysis, progress: Progress) -> Arrays:
    """value [sentence, head], NaN for a head without one, and head, the names. Raises InputError for another shape."""
    from headcount.heads.door import Run

    run = Run(**{field.name: getattr(analysis.run, field.name) for field in fields(Run)})
    rows = analysis.own_test.rows.select(analysis.own_test.chosen(SENTENCES))
    heads = analysis.heads.labels
    found = function(run, list(rows["source"]), list(rows["target"]))
    named = (
        set(found["head"].values.tolist()) <= set(heads.tolist()) if "head" in getattr(found, "coords", ()) else False
    )
    if not named or not set(found.dims) <= {"sentence", "head"}:
        shape = "an xarray.DataArray [sentence, head] or [head] with names of heads"
        raise InputError(f"{function.__name__}: must give {shape}, such as {heads[0]}")
    found = found if "sentence" in found.dims else found.expand_dims("sentence")
    return {"value": found.transpose("sentence", "head").reindex(head=heads).to_numpy(), "head": heads}


def extra_rows(parts: Mapping[str, Arrays]) -> Iterator[Row]:
    """Rows of heads.csv of your own measures: the mean over sentences, and its 95 % interval for itself."""
    for name, arrays in parts.items():
        for head, values in zip(arrays["head"].tolist(), arrays["value"].T, strict=True) if PREFIX in name else ():
            known = values[np.isfinite(values)].astype(np.float64)
            if len(known):
                error = known.std(ddof=1) / np.sqrt(len(known)) if len(known) > 1 else np.nan
                mean, half = float(known.mean()), float(stats.t.isf(ERROR / 2, len(known) - 1) * error)
                yield Row(head, f"measure.{name.removeprefix(PREFIX)}", "all", mean, mean - half, mean + half)
