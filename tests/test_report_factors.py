"""Rows that differ in two settings: the plot of one by the other."""

import json
from pathlib import Path

import pytest
from reports import page_of, section_of
from sweeps import STUDY, sentences, write_run

from headcount.report.read import read_sweep
from headcount.report.sections.factors import two_settings


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


def test_a_line_for_each_width(tmp_path, undrawn):
    page = page_of(write_widths(tmp_path / "sweep", (64, 128), (1, 2, 4)))
    text, plots = section_of(page, "By num_heads and d_model").blocks
    assert "A line joins the means of the rows that have the same d_model." in text
    spec = json.loads(plots.plots[0].spec)
    lines = spec["layer"][-1]["data"]["values"]
    first = [mean for mean in lines if mean["measure"] == spec["params"][0]["value"]]
    assert {(mean["group"], mean["at"]) for mean in first} == {(d, h) for d in ("64", "128") for h in (1, 2, 4)}
    assert spec["layer"][0]["encoding"]["x"]["scale"]["type"] == "log"


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
