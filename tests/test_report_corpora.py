"""Reports of studies in which each seed has a corpus of its own."""

import itertools
import math
import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from reports import edit, job, page_of, rows_of, section_of, study_of
from sweeps import STUDY, sentences, write_plan, write_run

from headcount.errors import InputError
from headcount.report.flags import flagged
from headcount.report.page import markdown
from headcount.report.read import read_sweep
from headcount.report.sections.effects import crossed_settings, main_effects
from headcount.statistics.comparison import compare

SEEDS, LINES = (1, 2, 3, 4), 60


def write_own(folder: Path, rows: dict[int, float], seeds=SEEDS) -> Path:
    """Corpora that differ much more than the rows do."""
    for heads, errors in rows.items():
        for seed in seeds:
            config = {
                "data": {"kind": "grammar", "seed": seed, "fingerprint": f"corpus {seed}"},
                "model": {"num_heads": heads},
                "study": STUDY,
            }
            luck = random.Random(f"{heads} {seed}").gauss(0, 0.004)
            share = errors + luck + 0.05 * seed
            write_run(folder / job(heads, seed), sentences(LINES, seed=10 * seed), share, seed, config)
    return folder


@pytest.fixture
def own(tmp_path, undrawn) -> Path:
    return write_own(tmp_path / "sweep", {1: 0.14, 2: 0.11, 4: 0.10})


@pytest.mark.medium
def test_the_effect_of_a_corpus_is_no_part_of_a_difference(own):
    """The intervals are those of the differences within corpora, computed here pair by pair."""
    study = study_of(own)
    assert study.sweep.blocks
    scores, comparison = np.array(study.endpoint.scores), study.endpoint.comparison
    residuals = scores - scores.mean(axis=0) - scores.mean(axis=1, keepdims=True) + scores.mean()
    assert scores.mean(axis=0).std() > 5 * residuals.std()
    rows, corpora = scores.shape
    variance = (residuals**2).sum() / ((rows - 1) * (corpora - 1))  # of two-way tables without interaction
    assert comparison.spread.pooled == pytest.approx(variance)
    assert comparison.spread.total_df == (rows - 1) * (corpora - 1)
    assert comparison.whole.pooled == pytest.approx(scores.var(axis=1, ddof=1).mean())
    assert comparison.differences[0].deviation < compare(scores.tolist()).differences[0].deviation / 3


def test_two_rows_are_compared_by_a_paired_t_test():
    first, second = [30.0, 34.0, 41.0], [30.5, 34.1, 41.6]
    (difference,) = compare([first, second], blocks=True).differences
    apart = np.subtract(first, second)
    assert difference.value == pytest.approx(apart.mean())
    assert difference.deviation == pytest.approx(apart.std(ddof=1) / 3**0.5)
    assert difference.df == pytest.approx(2)


@pytest.mark.medium
def test_a_row_that_varies_more_than_others_keeps_its_variance():
    """Shukla 1972: the mean over rows takes some of a row's own variance from it."""
    rng = np.random.default_rng(0)
    estimates = []
    for _ in range(300):
        scores = rng.standard_normal((4, 8)) * np.array([[20.0], [1.0], [1.0], [1.0]]) + rng.standard_normal(8)
        estimates.append(compare(scores.tolist(), blocks=True).spread.variances[0])
    assert np.mean(estimates) == pytest.approx(400, rel=0.15)


@pytest.mark.medium
def test_a_row_that_varies_much_does_not_hide_differences_of_steady_rows():
    """Its noise is no part of a difference of two others."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(100):
        scores = rng.standard_normal((4, 5)) * np.array([[20.0], [1.0], [1.0], [1.0]]) + rng.standard_normal(5)
        scores[3] += 6
        pairs = {(each.first, each.second): each for each in compare(scores.tolist(), blocks=True).differences}
        found.append(pairs[2, 3].differs)
        assert pairs[0, 3].deviation > 3 * pairs[2, 3].deviation
    assert np.mean(found) > 0.8


@pytest.mark.medium
def test_a_report_says_what_its_verdicts_are_on(own):
    page = page_of(own)
    assert any("Each seed has a corpus of its own" in flag for flag in page.flags)
    assert not any("more than their seed" in flag or "is missing" in flag for flag in page.flags)
    _, note, _, losses, _, _ = section_of(page, "Every pair of conditions").blocks
    assert "seeds, each with a corpus and 120 held-out sentences of its own" in note
    assert "bootstrap" not in note
    assert "over seeds and corpora" in losses
    assert rows_of(own) == ["1", "2", "4"]


@pytest.mark.medium
def test_a_corpus_that_the_command_line_names_is_no_part_of_the_name_of_a_row(own):
    for path in own.glob("*/config.yaml"):
        path.write_text(path.read_text().replace("varies: model.num_heads", "varies: null"))
    jobs = {job(h, s): [f"model.num_heads={h}", f"data.seed={s}", f"seed={s}"] for h in (1, 2, 4) for s in SEEDS}
    write_plan(own, jobs)
    assert rows_of(own) == ["1", "2", "4"]


@pytest.mark.medium
def test_rows_without_a_common_corpus_have_losses_to_compare(own):
    for heads, seeds in ((1, (1, 2)), (2, (3, 4)), (4, (3, 4))):
        for seed in seeds:
            shutil.rmtree(own / job(heads, seed))
    study = study_of(own)
    assert study.sweep.corpora
    assert len(study.loss.differences) == 3
    assert not any("vocabulary" in flag for flag in page_of(own).flags)


@pytest.mark.medium
def test_a_row_that_lacks_a_corpus(own):
    """Then the effect of the corpus counts as one of the seed, and the intervals are wide."""
    whole = study_of(own).endpoint.comparison.differences[0].half_width
    shutil.rmtree(own / job(4, 3))
    study = study_of(own)
    assert study.sweep.corpora
    assert not study.sweep.blocks
    assert study.endpoint.comparison.differences[0].half_width > 2 * whole
    assert len(study.loss.differences) == 3
    assert "whose effect on all conditions is included, since a condition lacks a corpus" in markdown(page_of(own))
    assert "Not every condition has the same seeds: 4 lacks 3." in flagged(study.sweep)


@pytest.mark.medium
def test_an_effect_varies_by_what_the_draw_of_sentences_gives_at_least(tmp_path, undrawn):
    """Where the differences between two values agree by luck on all corpora."""
    folder = tmp_path / "sweep"
    for width, heads, seed in itertools.product((64, 128), (1, 4), (1, 2, 3)):
        config = {
            "data": {"kind": "grammar", "seed": seed, "fingerprint": f"corpus {seed}"},
            "model": {"num_heads": heads, "d_model": width},
            "study": STUDY | {"varies": None},
        }
        write_run(folder / f"{width} {heads} {seed}", sentences(LINES, seed=seed), 0.1 + 0.02 * heads, seed, config)
    study = study_of(folder)
    levels = list(crossed_settings(study.rows)["model.num_heads"].values())
    resampled = study.endpoint.resampled
    assert [own.shape for own in resampled] == [(100, 3)] * 4
    lucky = tuple((50.0 - row % 2,) * 3 for row in range(4))
    study = replace(study, endpoint=replace(study.endpoint, scores=lucky))
    (found,) = main_effects(study, levels, 0.05).differences
    study = replace(study, endpoint=replace(study.endpoint, resampled=()))
    (without,) = main_effects(study, levels, 0.05).differences
    assert without.seeds == 0
    apart = np.mean([resampled[row] for row in levels[0]], 0) - np.mean(
        [resampled[row] for row in levels[1]], 0
    )  # [resample, seed]
    assert found.seeds == pytest.approx(apart.var(axis=0, ddof=1).mean() / 3)


@pytest.mark.medium
def test_runs_without_a_figure_are_not_taken_for_runs_on_another_corpus(own):
    """A run of each of two rows has no loss, on different corpora: places in the rows are then not corpora."""
    for heads, seed in ((1, 1), (2, 4)):
        edit(own / job(heads, seed) / "metrics.json", valid__loss=math.nan)
    loss = study_of(own).loss
    assert loss.whole is loss.spread


@pytest.mark.medium
def test_corpora_that_do_not_go_with_the_seed_are_refused(own):
    path = own / job(1, 2) / "metrics.json"
    path.write_text(path.read_text().replace('"seed": 2', '"seed": 1'))
    with pytest.raises(InputError, match="tested on different references"):
        read_sweep(own)


@pytest.mark.medium
def test_two_seeds_with_one_test_set_have_no_corpora_of_their_own(own):
    """As where each seed has training text of its own, and all share a test set."""
    for heads in (1, 2, 4):
        for seed in SEEDS:
            for split in ("test", "valid"):
                for kind in ("ref", "hyp"):
                    name = f"{split}.{kind}.de"
                    (own / job(heads, seed) / name).write_bytes((own / job(heads, 1) / name).read_bytes())
    study = study_of(own)
    assert not study.sweep.corpora
    assert study.endpoint.comparison.interaction is not None
