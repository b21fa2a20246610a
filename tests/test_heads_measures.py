"""Parts are measured once; a measure of one's own is a row for each head, kept until its source changes."""

import csv

import numpy as np
import pytest
import xarray as xr
from conftest import command, completed, failed

import headcount
from headcount.heads import registered, shapley
from headcount.heads.effects import read_parts
from headcount.heads.registered import extra_rows, own_parts

FEW = ("test=4", "valid=4", "shapley_sentences=2", "permutations=2")


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    monkeypatch.setattr(registered, "_OWN", {})


@pytest.fixture
def run(home, tmp_path):
    """A run without results."""
    (tmp_path / "run").mkdir()
    for path in (home / "runs" / "first").iterdir():
        if path.name != "heads":
            (tmp_path / "run" / path.name).symlink_to(path)
    return tmp_path / "run"


@pytest.mark.medium
def test_measures_of_your_own_are_rows_and_are_measured_once(run, home, caplog):
    calls = []

    @headcount.measure
    def beginning(opened, sources, targets):
        calls.append(len(sources))
        return opened.attention(sources, targets, "cross").pattern.isel(key=0).mean("query")

    @headcount.measure
    def harm(opened, sources, targets):
        loss = opened.loss(sources, targets, off=[[], *([head] for head in opened.heads.names)])
        return (loss - loss[0])[1:].rename(setting="head")

    @headcount.measure
    def number(opened, sources, targets):
        return xr.DataArray([4.0, 0.5], {"head": ["encoder1.2", "cross1.1"]}, ("head",))

    names = [part.name for part in own_parts()]
    arguments = (f"run={run}", f"parts=[ablation,{','.join(names)}]", *FEW)
    completed("heads", *arguments, cwd=home)
    parts = read_parts(run / "heads" / "effects.nc")
    assert [parts[name]["value"].shape for name in names] == [(4, 6), (4, 6), (1, 6)]
    ablated, found = parts["ablation"], parts["measure_harm"]["value"].T
    assert ablated["zero.off"].tolist() == ["", *ablated["head"].tolist()]
    assert found == pytest.approx(ablated["zero.loss"][1:] - ablated["zero.loss"][0], abs=1e-4)
    rows = list(extra_rows(parts))
    assert [(row.head, row.estimate) for row in rows if row.endpoint == "measure.number"] == [
        ("encoder1.2", 4), ("cross1.1", 0.5)
    ]  # fmt: skip
    found = [row for row in rows if row.endpoint == "measure.beginning"]
    assert [row.head for row in found] == ["cross1.1", "cross1.2"]
    assert all(0 < row.estimate < 1 and row.low < row.estimate < row.high for row in found)
    with (run / "heads" / "heads.csv").open(encoding="utf-8") as file:
        assert sum(row["endpoint"].startswith("measure.") for row in csv.DictReader(file)) == len(rows) == 10

    completed("heads", *arguments, cwd=home)
    assert calls == [4]
    assert "your measure beginning: kept from before" in caplog.text

    @headcount.measure
    def beginning(opened, sources, targets):  # noqa: F811
        return opened.attention(sources, targets, "cross").pattern.isel(key=1).mean("query")

    completed("heads", *arguments, cwd=home)
    changed = read_parts(run / "heads" / "effects.nc")
    assert not np.array_equal(changed["measure_beginning"]["value"], parts["measure_beginning"]["value"])
    assert np.array_equal(changed["measure_harm"]["value"], parts["measure_harm"]["value"])


@pytest.mark.medium
def test_a_measure_of_another_shape_is_refused(run, home):
    for given in (
        np.ones(6),
        xr.DataArray(np.ones(6), dims=("head",)),
        xr.DataArray([1.0], {"head": ["cross9.9"]}, ("head",)),
        xr.DataArray([[1.0]], {"head": ["cross1.1"]}, ("head", "token")),
    ):

        @headcount.measure
        def wrong(*_, found=given):
            return found

        (line,) = failed("heads", f"run={run}", "parts=[measure_wrong]", *FEW, cwd=home)
        assert "wrong: must give an xarray.DataArray [sentence, head] or [head] with names of heads" in line


@pytest.mark.medium
def test_parts_that_are_done_are_kept_where_a_later_one_is_killed(run, home, monkeypatch, caplog):
    def killed(*_):
        raise KeyboardInterrupt

    arguments, file = (f"run={run}", "parts=[ablation,shapley]", *FEW), run / "heads" / "effects.nc"
    with monkeypatch.context() as context:
        context.setattr(shapley, "marginals", killed)
        assert command("heads", *arguments, cwd=home).code != 0
    before = read_parts(file)
    assert list(before) == ["ablation"]
    completed("heads", *arguments, cwd=home)
    assert "each head switched off in turn: kept from before" in caplog.text
    after = read_parts(file)
    assert list(after) == ["ablation", "shapley"]
    assert str(after["ablation"]["key"]) == str(before["ablation"]["key"])
