"""Parts are measured once; a measure of one's own is a row for each head, cached by its source."""

import csv
import re

import numpy as np
import pytest
import xarray as xr
from conftest import command, completed, failed

import headcount
from headcount.errors import InputError
from headcount.heads import measures
from headcount.heads import shapley as later
from headcount.heads.effects import read_parts
from headcount.heads.measures import extra_rows, own_parts

FEW = ("test=4", "valid=4", "shapley_sentences=2", "permutations=2")


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    monkeypatch.setattr(measures, "_OWN", {})


@pytest.fixture
def run(home, tmp_path):
    """A run without results."""
    (tmp_path / "run").mkdir()
    for path in (home / "runs" / "first").iterdir():
        if path.name != "heads":
            (tmp_path / "run" / path.name).symlink_to(path)
    return tmp_path / "run"


def rows_of(run):
    with (run / "heads" / "heads.csv").open(encoding="utf-8") as file:
        return {row["head"]: row for row in csv.DictReader(file) if row["endpoint"].startswith("measure.")}


@pytest.mark.medium
def test_measures_of_your_own_are_rows_and_are_measured_once(run, home, caplog):
    calls = []

    @headcount.measure(needs="attention")
    def beginning(attention):
        calls.append("attention")
        return attention.pattern.isel(key=0).mean("query")

    @headcount.measure(needs="cache")
    def size(cache):
        heads = list(map(str, cache.heads))
        return xr.DataArray([float(cache[head].z.norm()) for head in heads], {"head": heads}, ("head",))

    @headcount.measure(needs="loss")
    def harm(loss):
        change = (loss - loss[0])[1:].rename(setting="head")
        return change.drop_vars("tokens")

    @headcount.measure
    def length(opened, sources, targets):
        heads = list(map(str, opened.heads.names))[:2]
        return xr.DataArray([float(len(sources)), 0.5], {"head": heads}, ("head",))

    names = [part.name for part in own_parts()]
    arguments = (f"run={run}", f"parts=[ablation,{','.join(names)}]", *FEW)
    completed("heads", *arguments, cwd=home)
    parts = read_parts(run / "heads" / "effects.nc")
    assert [parts[name]["value"].shape for name in names] == [(4, 6), (4, 6), (4, 6), (1, 6)]
    zero = parts["ablation"]["zero.loss"]
    assert pytest.approx(zero[1:] - zero[0], abs=1e-4) == parts["measure_harm"]["value"].T
    assert np.isnan(parts["measure_length"]["value"][0, 2:]).all()
    rows = list(extra_rows(parts))
    assert [row["estimate"] for row in rows if row["endpoint"] == "measure.length"] == [4, 0.5]
    found = [row for row in rows if row["endpoint"] == "measure.beginning"]
    assert all(0 < row["estimate"] < 1 and row["low"] < row["estimate"] < row["high"] for row in found)
    assert len(found) == 6
    assert len(rows_of(run)) == 6

    count = len(calls)
    completed("heads", *arguments, cwd=home)
    assert len(calls) == count
    assert "your measure beginning: kept from before" in caplog.text

    @headcount.measure(needs="attention")
    def beginning(attention):  # noqa: F811
        return attention.pattern.isel(key=1).mean("query")

    completed("heads", *arguments, cwd=home)
    changed = read_parts(run / "heads" / "effects.nc")
    assert not np.array_equal(changed["measure_beginning"]["value"], parts["measure_beginning"]["value"])
    assert np.array_equal(changed["measure_size"]["value"], parts["measure_size"]["value"])


@pytest.mark.medium
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.ones(6), "must give an xarray.DataArray .*, not ndarray"),
        (xr.DataArray(np.ones(6), dims=("heads",)), r"must give an xarray.DataArray .*, not \('heads',\)"),
        (xr.DataArray(np.ones(6), dims=("head",)), "names of heads, such as encoder1.1"),
        (xr.DataArray([1.0], {"head": ["cross9.9"]}, ("head",)), "names of heads, such as encoder1.1"),
    ],
)
def test_a_measure_of_another_shape_is_refused(given, message, run, home):
    @headcount.measure
    def wrong(opened, sources, targets):
        return given

    (line,) = failed("heads", f"run={run}", "parts=[measure_wrong]", *FEW, cwd=home)
    assert re.match(f"wrong: .*{message}", line)
    with pytest.raises(InputError, match="needs='weights': must be one of ''"):
        headcount.measure(needs="weights")(wrong)


@pytest.mark.medium
def test_parts_that_are_done_are_kept_where_a_later_one_is_killed(run, home, monkeypatch, caplog):
    def killed(*_):
        raise KeyboardInterrupt

    arguments = (f"run={run}", "parts=[ablation,shapley]", *FEW)
    with monkeypatch.context() as context:
        context.setattr(later, "marginals", killed)
        assert command("heads", *arguments, cwd=home).code != 0
    before = read_parts(run / "heads" / "effects.nc")
    assert list(before) == ["ablation"]
    completed("heads", *arguments, cwd=home)
    assert "each head switched off in turn: kept from before" in caplog.text
    after = read_parts(run / "heads" / "effects.nc")
    assert list(after) == ["ablation", "shapley"]
    assert str(after["ablation"]["key"]) == str(before["ablation"]["key"])
