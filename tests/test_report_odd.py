"""Reports on odd sweeps: planned and half finished, with rows that vary unlike, or that learnt nothing."""

import math
import re

import pytest
from conftest import completed, refused, rewrite
from reports import edit, job, page_of, rows_of
from sweeps import STUDY, sentences, write_plan, write_run, write_sweep

from headcount.report.flags import unlike
from headcount.report.read import read_sweep
from headcount.report.verdicts import of_difference, p_value, power
from headcount.run.kept import read
from headcount.statistics.comparison import Difference, compare


@pytest.mark.parametrize("finished", [("1,0.1", "1,0.2", "4,0.1"), ("1,0.1", "4,0.2"), ("1,0.1", "4,0.1")])
def test_two_settings_that_are_planned_make_rows_however_few_runs_are_finished(finished, tmp_path):
    jobs = {}
    for heads in (1, 4):
        for rate in (0.1, 0.2):
            name = f"{heads},{rate}"
            jobs[name] = [f"model.num_heads={heads}", f"optimizer.lr={rate}", "seed=1"]
            if name in finished:
                config = {"model": {"num_heads": heads}, "optimizer": {"lr": rate}, "study": STUDY}
                write_run(tmp_path / name, sentences(30), 0.2, 1, config)
    write_plan(tmp_path, jobs)
    sweep = read_sweep(tmp_path)
    assert [len(row.runs) for row in sweep.rows] == [1] * len(finished)
    assert any("each combination of settings is a condition" in note for note in sweep.notes)
    assert rows_of(tmp_path) == [
        f"num_heads={heads}, lr={rate}" for heads, _, rate in (name.partition(",") for name in finished)
    ]


def test_options_of_one_kind_are_rows(tmp_path):
    jobs = {}
    for index, option in enumerate(("muon", "muon_large", "adamw")):
        optimizer = {"kind": option.partition("_")[0], "lr": 0.1 * index}
        write_run(tmp_path / option, sentences(30), 0.2, 1, {"optimizer": optimizer, "study": {"varies": "optimizer"}})
        jobs[option] = [f"optimizer={option}", "seed=1"]
    write_plan(tmp_path, jobs)
    assert rows_of(tmp_path) == ["adamw", "muon", "muon_large"]


def test_arms_are_rows_of_one_study(tmp_path):
    for heads, arm in ((1, "one head"), (4, "four heads")):
        study = STUDY | {"varies": "study.arm", "arm": arm, "arms": {"one head": [1], "four heads": [4]}}
        write_run(tmp_path / arm, sentences(30), 0.2, 1, {"model": {"num_heads": heads}, "study": study})
    sweep = read_sweep(tmp_path)
    assert [row.label for row in sweep.rows] == ["four heads", "one head"]
    assert not sweep.notes


@pytest.mark.medium
def test_runs_of_another_sweep_are_not_mixed_with_those_kept(sweep, tmp_path, undrawn):
    for _ in range(2):
        completed("report", f"sweep={sweep}", f"keep={tmp_path / 'kept'}")
    other = write_sweep(tmp_path / "other", {8: 0.2}, (1,))
    (line,) = refused("report", f"sweep={other}", f"keep={tmp_path / 'kept'}", cwd=tmp_path)
    assert re.match(r"keep=\S+/kept: runs\.parquet there has 4 runs that \S+/other lacks, such as model\.num_h", line)
    assert job(8, 1) not in read(tmp_path / "kept" / "runs.parquet")


def test_rows_that_vary_very_unlike_are_flagged():
    even = [[30.0, 30.2, 30.1], [29.0, 29.3, 29.1], [31.0, 31.2, 31.3]]
    assert unlike(compare(even)) == []
    (line,) = unlike(compare([*even, [10.0, 12.0, 30.0]]))
    assert line.startswith("The runs of a condition deviate by 0.11 to 11.02 BLEU")


def test_a_number_is_not_rounded_across_a_verdict():
    assert [p_value(p) for p in (0.0004, 0.0483, 0.0496, 0.0504)] == ["< 0.001", "0.049", "< 0.050", "0.050"]
    shown = [of_difference(Difference(0, 1, value, 0.1, 0.0, math.inf, 2)) for value in (0.615, 0.6242, -0.65)]
    assert shown == ["[0.00, 1.23]", "[0.004, 1.244]", "[-1.27, -0.03]"]


def test_rows_of_unequal_size_are_not_all_like_the_smallest():
    uneven = compare([[36.0, 37.0, 36.5], [36.4, 36.9]])
    assert "This study detects " in power(uneven)


@pytest.mark.medium
def test_runs_that_have_not_learnt_to_translate_are_flagged(tmp_path, undrawn):
    folder = write_sweep(tmp_path / "sweep", {1: 1.0, 4: 1.0}, (1, 2), 30)
    for path in folder.glob("*/test.hyp.de"):
        path.write_text("x\n" * 30, encoding="utf-8")
        edit(path.with_name("metrics.json"), test__bleu=0.0)
    page = page_of(folder)
    assert page.flags[0].startswith("No run has learnt to translate (test BLEU below 5): 1 and 4.")
    assert page.verdict.startswith("No run has learnt to translate: the highest test BLEU is 0.0")


@pytest.mark.medium
def test_a_copy_beside_a_translation_is_not_read(sweep, undrawn):
    for config in sweep.glob("*/config.yaml"):
        rewrite(config, lambda text: text.replace("data:\n", "data:\n  target: de\n"))
    (sweep / job(4, 1) / "test.hyp.bak").write_text("x\n" * 30, encoding="utf-8")
    assert page_of(sweep).flags == ()
