"""Contrasts named before the runs, and the standard method beside the report's own: against scipy's tests."""

import numpy as np
import pytest
from conftest import completed, refused
from reports import ROWS
from scipy import stats
from sweeps import write_sweep

from headcount.statistics.comparison import compare, interaction
from headcount.statistics.planned import by_one_variance, planned

DRAWN = np.random.default_rng(3)
UNLIKE = [(30 + DRAWN.normal(0, spread, 5)).tolist() for spread in (0.2, 0.2, 0.2, 4)]


def test_one_variance_is_tukeys_test_where_rows_differ_in_theirs():
    compared = compare(UNLIKE)
    standard = by_one_variance(compared)
    assert not compared.spread.alike
    exact = stats.tukey_hsd(*UNLIKE).pvalue
    assert [each.p for each in standard.differences] == pytest.approx(
        [exact[each.first, each.second] for each in standard.differences], rel=1e-6
    )


def test_one_variance_on_corpora_is_a_two_way_analysis_of_variance():
    corpora = DRAWN.normal(0, 5, 4)
    scores = np.array([50 + corpora + DRAWN.normal(level, 1, 4) for level in (0, 0, 3)])
    standard = by_one_variance(compare(scores.tolist(), blocks=True))
    rest = scores - scores.mean(axis=1, keepdims=True) - scores.mean(axis=0) + scores.mean()
    error = (rest**2).sum() / 6
    apart = scores[0].mean() - scores[2].mean()
    exact = stats.studentized_range.sf(abs(apart) / np.sqrt(error / 4), 3, 6)
    assert standard.differences[1].p == pytest.approx(exact, rel=1e-6)


def test_one_variance_adds_the_mean_of_what_sentences_add():
    resampled = DRAWN.normal(0, 1, (500, 6)) + np.repeat(DRAWN.normal(0, [1, 2, 3], (500, 3)), 2, axis=1)
    sampling = interaction(resampled, [0, 0, 1, 1, 2, 2], 2000)
    standard = by_one_variance(compare([[1, 2], [2, 3], [3, 4]], sampling))
    assert [each.sentences for each in standard.differences] == pytest.approx([sampling.typical[0]] * 3)
    assert sampling.typical[0] == pytest.approx(sampling.variance[np.triu_indices(3, 1)].mean())


def test_planned_contrasts_are_t_tests_with_the_variance_of_all_rows():
    noise = DRAWN.normal(0, 0.3, 5)
    scores = [(20 + step / 10 + spread * noise).tolist() for step, spread in enumerate((1, 1.1, 0.9, 1))]
    compared = compare(scores)
    found = planned(compared, {"ends": (3, 0), "near": (0, 1)})
    assert compared.spread.alike
    error = np.sqrt(np.mean([np.var(row, ddof=1) for row in scores]) * 2 / 5)
    apart = [np.mean(scores[3]) - np.mean(scores[0]), np.mean(scores[0]) - np.mean(scores[1])]
    alone = [2 * stats.t.sf(abs(value) / error, 16) for value in apart]
    small, large = sorted(alone)
    adjusted = {small: min(2 * small, 1), large: max(2 * small, large)}
    half = stats.t.isf(0.05 / 2 / 2, 16) * error
    for contrast, value, p in zip(found, apart, alone, strict=True):
        assert (contrast.value, contrast.p) == pytest.approx((value, adjusted[p]))
        assert contrast.interval == pytest.approx((value - half, value + half))


@pytest.mark.medium
def test_a_report_shows_them_and_refuses_what_is_no_row(tmp_path):
    folder = write_sweep(tmp_path / "sweep", ROWS)
    completed("report", f"sweep={folder}", "resamples=200", "planned={more heads: [4,1]}")
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert "## Planned contrasts" in text
    assert "| more heads | 4 − 1" in text
    (said,) = refused("report", f"sweep={folder}", "planned={more: [4,16]}", cwd=folder)
    assert said == "planned.more=[4,16]: must be two conditions of 1; 4"
