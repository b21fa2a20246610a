"""Rows that differ in two settings: the plot of one by the other."""

import json
import shutil
from pathlib import Path

import pytest
from reports import page_of, section_of, study_of
from sweeps import STUDY, sentences, write_run

from headcount.report.read import read_sweep
from headcount.report.sections.effects import crossed_settings
from headcount.report.sections.quality import two_settings


def write_widths(folder: Path, widths, heads, other="model.d_model") -> Path:
    group, name = other.split(".")
    for width in widths:
        for number in heads:
            for seed in (1, 2):
                model = {"num_heads": number} | ({name: width} if group == "model" else {})
                config = {"model": model, "study": STUDY | {"varies": None}}
                if group != "model":
                    config[group] = {name: width}
                job = folder / f"{other}={width},model.num_heads={number},seed={seed}"
                write_run(job, sentences(40), 0.1 + 0.02 * number + 0.01 * seed, seed, config)
    return folder


@pytest.mark.medium
def test_a_line_for_each_width(tmp_path, undrawn):
    page = page_of(write_widths(tmp_path / "sweep", (64, 128), (1, 2, 4)))
    (plots,) = section_of(page, "By num_heads and d_model").blocks
    assert "A line joins the means of the rows that have the same d_model." in plots.legend
    spec = json.loads(plots.plots[0].spec)
    lines = spec["layer"][-1]["data"]["values"]
    first = [mean for mean in lines if mean["measure"] == spec["params"][0]["value"]]
    assert {(mean["group"], mean["at"]) for mean in first} == {(d, h) for d in ("64", "128") for h in (1, 2, 4)}
    assert spec["layer"][0]["encoding"]["x"]["scale"]["type"] == "log"


@pytest.mark.medium
@pytest.mark.parametrize(
    ("widths", "heads", "other", "expected"),
    [
        (("gelu", "relu"), (1, 2), "model.activation", ("model.num_heads", "model.activation")),
        ((64, 128, 256), (1, 2), "model.d_model", ("model.d_model", "model.num_heads")),
        ((64,), (1, 2), "model.d_model", None),
    ],
)
def test_the_setting_with_more_whole_numbers_is_on_the_axis(tmp_path, widths, heads, other, expected):
    sweep = read_sweep(write_widths(tmp_path / "sweep", widths, heads, other))
    assert two_settings(sweep.rows) == expected


def effects_of(folder: Path) -> list[tuple[str, ...]]:
    _, table = section_of(page_of(folder), "Effect of each setting").blocks
    return list(table.cells)


@pytest.mark.medium
def test_the_effect_of_a_setting_is_averaged_over_the_others(tmp_path, undrawn):
    folder = write_widths(tmp_path / "sweep", (64, 128), (1, 2, 4))
    width, *heads = effects_of(folder)
    assert width[:2] == ("d_model", "64 − 128")
    assert (width[3], width[-1]) == ("+0.00", "+0.00 to +0.00")  # the toy runs follow the heads alone
    assert [line[:2] for line in heads] == [("num_heads", f"{a} − {b}") for a, b in ((1, 2), (1, 4), (2, 4))]
    study = study_of(folder)
    means = dict(zip([row.label for row in study.rows], study.endpoint.comparison.means, strict=True))
    one, four = (sum(mean for label, mean in means.items() if label.endswith(f"num_heads={n}")) / 2 for n in (1, 4))
    assert float(heads[1][3]) == pytest.approx(one - four, abs=0.006)


@pytest.mark.medium
def test_an_effect_needs_all_combinations(tmp_path, undrawn):
    folder = write_widths(tmp_path / "sweep", (64, 128), (1, 2, 4))
    shutil.rmtree(folder / "model.d_model=64,model.num_heads=1,seed=1")
    assert crossed_settings(read_sweep(folder).rows) is None  # not the same seeds
    shutil.rmtree(folder / "model.d_model=64,model.num_heads=1,seed=2")
    assert crossed_settings(read_sweep(folder).rows) is None
