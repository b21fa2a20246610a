"""The choice of a setting for each row by validation loss."""

from pathlib import Path

import pytest
import yaml
from conftest import rewrite
from reports import MARGINS, edit, table_of_section
from sweeps import STUDY, sentences, write_run

from headcount.errors import InputError
from headcount.report.read import read_sweep
from headcount.report.study import Study
from headcount.report.write import keep_runs, make_page, results_csv

# Validation loss by heads and rate, of the seeds 1, 2, ...
LOSSES = {(1, 0.1): [2.0, 2.2], (1, 0.2): [1.0], (1, 0.4): [3.0], (4, 0.1): [1.0, 1.4], (4, 0.2): [1.1, 1.2]}


def write_rates(folder: Path, losses=LOSSES) -> Path:
    for (heads, rate), of_seeds in losses.items():
        for seed, loss in enumerate(of_seeds, 1):
            job = folder / f"model.num_heads={heads},optimizer.lr={rate},seed={seed}"
            config = {"model": {"num_heads": heads}, "optimizer": {"lr": rate}, "study": STUDY}
            write_run(job, sentences(40), 0.1 + 0.02 * heads + 0.01 * seed, seed, config)
            edit(job / "metrics.json", valid__loss=loss)
    return folder


def rates(folder: Path) -> dict[str, list[tuple[float, int]]]:
    rows = read_sweep(folder, "optimizer.lr").rows
    return {row.label: [(run.config["optimizer"]["lr"], run.seed) for run in row.runs] for row in rows}


@pytest.mark.medium
def test_each_row_keeps_the_value_of_the_lowest_loss_on_seeds_that_all_values_have(tmp_path):
    assert rates(write_rates(tmp_path)) == {"1": [(0.2, 1)], "4": [(0.2, 1), (0.2, 2)]}


@pytest.mark.medium
def test_a_run_that_diverged_is_not_chosen(tmp_path):
    folder = write_rates(tmp_path)
    edit(folder / "model.num_heads=1,optimizer.lr=0.2,seed=1" / "metrics.json", valid__loss=None)
    assert rates(folder)["1"] == [(0.1, 1), (0.1, 2)]


def test_values_may_be_lists(tmp_path, undrawn):
    for heads, loss in (([1, 4], 1.5), ([4, 1], 1.0)):
        config = {"model": {"num_heads": 4, "cross_heads": heads}, "study": STUDY}
        job = tmp_path / f"model.cross_heads={heads},seed=1"
        write_run(job, sentences(40), 0.2, 1, config)
        edit(job / "metrics.json", valid__loss=loss)
    study = Study.of(read_sweep(tmp_path, "model.cross_heads"), 100, MARGINS)
    table = table_of_section(make_page(study), "Choice of model.cross_heads")
    assert table.cells == [["4", "[1,4]", "1.5000", "", "1"], ["4", "[4,1]", "1.0000", "yes", "1"]]


@pytest.mark.medium
def test_the_page_tells_what_was_tried_and_where_the_choice_is_at_an_edge(tmp_path, undrawn):
    sweep = read_sweep(write_rates(tmp_path), "optimizer.lr")
    study = Study.of(sweep, 100, MARGINS)
    page = make_page(study)
    table = table_of_section(page, "Choice of optimizer.lr")
    assert table.cells == [
        ["1", "0.1", "2.0000", "", "1"],
        ["1", "0.2", "1.0000", "yes", "1"],
        ["1", "0.4", "3.0000", "", "1"],
        ["4", "0.1", "1.2000", "", "1 2"],
        ["4", "0.2", "1.1500", "yes, the largest", "1 2"],
    ]


@pytest.mark.medium
def test_runs_left_out_are_listed_and_kept(tmp_path):
    sweep = read_sweep(write_rates(tmp_path / "sweep"), "optimizer.lr")
    lines = results_csv(sweep).splitlines()[1:]
    assert len(lines) == sum(map(len, LOSSES.values()))
    assert sum(",,1,yes," in line or ",,2,yes," in line for line in lines) == len(sweep.left_out) == 5
    again = read_sweep(keep_runs(sweep, tmp_path / "runs.parquet"), "optimizer.lr")
    assert [run.name for run in again.left_out] == [run.name for run in sweep.left_out]


@pytest.mark.medium
@pytest.mark.parametrize(
    ("losses", "tuned", "message"),
    [
        (LOSSES, "optimizer.rate", "no run has this setting"),
        ({(1, 0.1): [1.0], (4, 0.1): [1.0]}, "optimizer.lr", "no condition has runs with two values"),
    ],
)
def test_nothing_to_choose(tmp_path, losses, tuned, message):
    with pytest.raises(InputError, match=f"tuned={tuned}: {message}"):
        read_sweep(write_rates(tmp_path, losses), tuned)


@pytest.mark.medium
def test_values_without_a_common_seed_are_not_compared(tmp_path):
    folder = write_rates(tmp_path)
    name = "model.num_heads=1,optimizer.lr=0.1,seed={}"
    (folder / name.format(1)).rename(folder / "away")
    (folder / "away" / "config.yaml").unlink()
    with pytest.raises(InputError, match=r"no seed with a validation loss at each of 0\.1, 0\.2, 0\.4"):
        read_sweep(folder, "optimizer.lr")


@pytest.mark.medium
def test_a_setting_that_follows_the_chosen_one_makes_no_rows(tmp_path):
    """The rate of the other parameters is that of the hidden matrices, by interpolation, and is kept as a number."""
    folder = write_rates(tmp_path)
    for path in folder.glob("*/config.yaml"):
        rate = yaml.safe_load(path.read_text(encoding="utf-8"))["optimizer"]["lr"]
        rewrite(path, lambda text, rate=rate: text.replace(f"lr: {rate}", f"lr: {rate}\n  adamw_lr: {rate}"))
    assert rates(folder) == {"1": [(0.2, 1)], "4": [(0.2, 1), (0.2, 2)]}
    assert not read_sweep(folder, "optimizer.lr").notes


@pytest.mark.medium
def test_rows_with_rates_of_their_own_stay_rows(tmp_path):
    """Each rate has one number of heads, but a number of heads has several rates."""
    losses = {(1, 0.1): [2.0], (1, 0.2): [1.0], (4, 0.3): [1.0], (4, 0.4): [1.1]}
    assert rates(write_rates(tmp_path, losses)) == {"1": [(0.2, 1)], "4": [(0.3, 1)]}
