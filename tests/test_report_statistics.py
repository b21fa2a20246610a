"""Statistics of a report, against other implementations and against simulated studies."""

import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import power
import pytest
import resampled
import sacrebleu
from reports import edit, job, study_of
from scipy import stats
from simulation import World, analyse, simulate
from sweeps import changed, sentences

from headcount.report.measures import measures
from headcount.report.runs import Row, RunResult
from headcount.report.sections.contrastive import contrastive_cells
from headcount.statistics import bootstrap
from headcount.statistics.bootstrap import bleu_of, resampled_bleu, resamples, sentence_counts
from headcount.statistics.comparison import Interaction, compare, interaction
from headcount.statistics.planning import detectable, like, percent
from headcount.statistics.variances import moderated, moderated_pairs

WORLD = {name: default for name, (default, _) in power.WORLD.items()}


def world_of(**changes) -> World:
    """The world of scripts/power.py with some settings changed."""
    return World(**WORLD | changes)


REFERENCES = [*sentences(40), "ein Wolf", "der Hund", "Katze", '2,5 % von 1.000 "Wölfen" -- ja?']
CORPORA = {
    "translations": changed(REFERENCES, 0.3, 1),
    "copies": REFERENCES,
    "short ones": [line[: len(line) // 2] for line in REFERENCES],
    "few matches of order 4": changed(REFERENCES, 0.65, 1),
    "one word a sentence": [line.split()[0] for line in REFERENCES],
    "no match": ["xyz"] * len(REFERENCES),
    "nothing": [""] * len(REFERENCES),
}
PAIRS = 125
ROWS = [[36.1, 36.5, 36.2], [36.9, 36.4, 37.1, 36.8], [35.4, 35.9], [36.6, 37.0, 36.2]]


@pytest.mark.parametrize("hypotheses", CORPORA.values(), ids=CORPORA)
def test_bleu_from_sums_is_sacrebleus(hypotheses):
    counts = sentence_counts(hypotheses, REFERENCES, "13a")
    assert bleu_of(counts.sum(axis=0)) == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [REFERENCES]).score, abs=1e-9)


@pytest.mark.parametrize("tokenizer", ["zh", "char", "intl"])
def test_bleu_from_sums_counts_other_tokens_as_sacrebleu_does(tokenizer):
    references = [line.replace(" ", "") for line in REFERENCES]
    hypotheses = [line.replace(" ", "") for line in CORPORA["translations"]]
    counts = sentence_counts(hypotheses, references, tokenizer)
    own = sacrebleu.corpus_bleu(hypotheses, [references], tokenize=tokenizer).score
    assert bleu_of(counts.sum(axis=0)) == pytest.approx(own, abs=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_bleu_of_a_few_sentences_is_sacrebleus(seed):
    # Few sentences, many errors: orders without a match, and without any n-gram.
    references = sentences(2, seed)
    hypotheses = [" ".join(line.split()[: seed % 6]) for line in changed(references, 0.5, seed)]
    counts = sentence_counts(hypotheses, references, "13a").sum(axis=0)
    assert bleu_of(counts) == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score, abs=1e-9)


def test_a_resample_is_the_corpus_with_sentences_drawn():
    hypotheses = CORPORA["translations"]
    counts = sentence_counts(hypotheses, REFERENCES, "13a")[None]
    weights = resamples(len(REFERENCES), 5, seed=3)
    assert (weights.sum(axis=1) == len(REFERENCES)).all()
    for weight, (score,) in zip(weights.astype(int), resampled_bleu(counts, weights), strict=True):
        drawn = [i for i, times in enumerate(weight) for _ in range(times)]
        lines = [hypotheses[i] for i in drawn], [[REFERENCES[i] for i in drawn]]
        assert score == pytest.approx(sacrebleu.corpus_bleu(*lines).score, abs=1e-9)


def test_a_bootstrap_in_blocks_draws_as_many(monkeypatch):
    monkeypatch.setattr("headcount.statistics.bootstrap.BLOCK", 100)
    counts = sentence_counts(CORPORA["translations"], REFERENCES, "13a")[None]
    found = bootstrap.bootstrapped_bleu(counts, 11)
    assert found.shape == (11, 1)
    assert len(np.unique(found)) == 11


@pytest.mark.medium
def test_without_sentences_it_is_tukeys_test():
    expected = stats.tukey_hsd(*ROWS)
    interval = expected.confidence_interval()
    found = compare(ROWS)
    assert len(found.differences) == 6
    for pair in found.differences:
        at = pair.first, pair.second
        assert pair.value == pytest.approx(expected.statistic[at])
        assert pair.p == pytest.approx(expected.pvalue[at], abs=1e-6)
        assert pair.interval == pytest.approx((interval.low[at], interval.high[at]), abs=1e-5)


def test_two_rows_are_students_test():
    (pair,) = compare(ROWS[:2]).differences
    expected = stats.ttest_ind(*ROWS[:2])
    assert pair.p == pytest.approx(expected.pvalue, abs=1e-6)
    assert pair.interval == pytest.approx(tuple(expected.confidence_interval()), abs=1e-5)


def test_the_interval_of_a_mean_is_students_with_the_pooled_variance():
    found = compare(ROWS)
    pooled = sum(np.var(row, ddof=1) * (len(row) - 1) for row in ROWS) / (12 - 4)
    assert found.spread.total_df == 8
    assert found.half_width(2) == pytest.approx(stats.t.ppf(0.975, 8) * math.sqrt(pooled / 2))


@pytest.mark.medium
@pytest.mark.parametrize("last", [1.0, 60.0])
def test_verdicts_intervals_and_p_values_agree(last):
    draw = np.random.default_rng(0)
    for effect in np.linspace(0, 40, 6):
        scores = draw.normal(size=(3, 3)) * np.array([[1.0], [1.0], [last]]) + effect * np.arange(3)[:, None]
        found = compare(scores.tolist())
        assert found.spread.alike == (last == 1)
        for pair in found.differences:
            low, high = pair.interval
            assert pair.differs == (not low <= 0 <= high) == (pair.p < 0.05)
            assert pair.equal(50) == (pair.p_equal(50) < 0.05)


def test_what_sentences_add_is_told_from_the_noise_of_runs():
    """Scores made of parts whose variances are known."""
    draw = np.random.default_rng(1)
    draws, counts = 20_000, (3, 5, 2)
    rows = [row for row, count in enumerate(counts) for _ in range(count)]
    common, own, noise = draw.normal(size=(draws, 1)), draw.normal(size=(draws, 3)), draw.normal(size=(draws, 10))
    own *= [1.0, 2.0, 0.0]
    found = interaction(3 * common + own[:, rows] + 0.5 * noise, rows, sentences=1000)
    assert found.noise == pytest.approx(0.25, rel=0.05)
    for (i, j), expected in {(0, 1): 5.0, (0, 2): 1.0, (1, 2): 4.0}.items():
        assert found.variance[i, j] == found.variance[j, i] == pytest.approx(expected, rel=0.1)


def test_one_seed_a_row_leaves_the_sentences():
    world = world_of(sentences=300)
    counts = world.draw(np.array([30.0, 36.0]), 1, np.random.default_rng(1))
    comparison = analyse(counts, 2, resamples(300, 500, 1))
    (pair,) = comparison.differences
    deviation = np.diff(resampled_bleu(counts, resamples(300, 500, 1)), axis=1).std(ddof=1)
    assert pair.deviation == pytest.approx(deviation)
    assert comparison.half_width(0) is None
    assert compare([[30.0], [36.0]]).differences == ()


# Validation losses of three seeds a row on the built-in corpus. Two rows are the same six runs in both studies.
ONE, FOUR = [0.15056, 0.14994, 0.14845], [0.11362, 0.11121, 0.11387]
HEADS = [ONE, [0.11868, 0.12369, 0.11992], FOUR, [0.11887, 0.11795, 0.11981]]
LINEAGE = [
    [1.65854, 1.69768, 1.68985], [0.18471, 0.19378, 0.19333], [0.12566, 0.12915, 0.12658], [0.11296, 0.11490, 0.11458],
    [0.27504, 0.25751, 0.27644], [0.18077, 0.16639, 0.16715], [0.15914, 0.15819, 0.15013], [1.85783, 1.99607, 1.85805],
    ONE, FOUR,
]  # fmt: skip


def test_the_same_runs_give_the_same_verdict_in_whatever_company():
    (few,) = (pair for pair in compare(HEADS).differences if (pair.first, pair.second) == (0, 2))
    (many,) = (pair for pair in compare(LINEAGE).differences if (pair.first, pair.second) == (8, 9))
    assert few.value == many.value == pytest.approx(0.0368, abs=1e-4)
    assert few.differs
    assert many.differs
    assert max(few.p, many.p) < 0.005
    assert many.half_width < 3 * few.half_width
    assert few.interval == pytest.approx((0.0323, 0.0412), abs=2e-4)
    assert many.interval == pytest.approx((0.029, 0.045), abs=0.005)


def test_unlike_rows_whose_seeds_agree_by_luck_do_not_look_precise():
    """Seeds count for their share of the variance, not for its square."""
    rows, same = [*LINEAGE[1:4], [5.0, 9.0, 1.0]], np.ones((4, 4))
    found = compare(rows, Interaction(1e-4 * same, 0.0, 1e-15 * same, 1000.0, (1e-4, 0.0)))
    for pair in found.differences:
        alone = found.spread.of_difference(pair.first, pair.second)[1]
        assert pair.df == pytest.approx(alone * (pair.seeds + 1e-4) / pair.seeds, rel=1e-3)


def test_a_row_that_varies_more_than_chance_explains_keeps_its_variance():
    """One of four rows deviates more, which all rows together do not contradict."""
    spread = compare([*ROWS[:3], [36.0, 37.6, 36.2, 37.4]]).spread
    assert spread.alike
    assert spread.variances[0] == spread.variances[1] == spread.pooled < spread.variances[3]
    assert set(spread.df) == {spread.total_df}


@pytest.mark.medium
@pytest.mark.parametrize(("rows", "seeds"), [(4, 5), (15, 3)])
@pytest.mark.parametrize("blocks", [False, True], ids=["one corpus", "a corpus for each seed"])
def test_rows_that_vary_alike_share_a_variance_nine_times_of_ten(rows, seeds, blocks):
    draw = np.random.default_rng(rows)
    spread = moderated_pairs if blocks else moderated
    shared = [spread(draw.normal(size=(rows, seeds)).tolist(), [0.0] * rows).alike for _ in range(200)]
    assert 0.83 < np.mean(shared) < 0.96


@pytest.mark.medium
@pytest.mark.parametrize("design", resampled.DESIGNS)
def test_few_false_alarms_in_studies_made_of_kept_translations(design):
    """Two standard errors of a few studies above the 7 % that docs/record/statistics.md has of many."""
    found = resampled.studies(design, 40, sentences=400)
    assert np.mean(resampled.alarms(found)) <= 0.15


def test_the_power_is_that_of_rows_with_their_own_deviations():
    """Pairs of a row that varies ten times as much are found at larger differences alone."""
    scores = [[36.0, 36.1, 36.2, 36.1, 36.15], [36.1, 36.3, 36.15, 36.2, 36.2], [34.0, 36.5, 38.0, 35.0, 36.0]]
    steady, wild, other = detectable(compare(scores))
    assert steady < 0.5 < 3 < min(wild, other)
    draw = np.random.default_rng(1)
    hits = 0
    for _ in range(300):
        deviations = np.sqrt(compare(scores).spread.variances)
        drawn = draw.normal(size=(3, 5)) * deviations[:, None] + np.array([[0.0], [0.0], [wild]])
        hits += compare(drawn.tolist()).differences[1].differs
    assert 0.7 < hits / 300 < 0.9


@pytest.mark.medium
def test_simulated_studies_vary_as_the_study_says():
    """Each pair by its own deviations, of the seeds and of the sentences."""
    draw = np.random.default_rng(2)
    drawn = np.repeat(draw.normal(size=(2000, 3)) * [0.2, 0.2, 2.0], 4, axis=1) + 0.1 * draw.normal(size=(2000, 12))
    scores = [[36.0, 36.4, 36.2, 36.1], [36.3, 36.1, 36.2, 36.5], [36.6, 36.1, 36.9, 36.3]]
    study = compare(scores, interaction(drawn, np.repeat(range(3), 4).tolist(), 2000))
    found = np.array([[pair.value for pair in each.differences] for each in like(study, 600)])
    expected = [pair.deviation for pair in study.differences]
    assert expected[0] < 0.5 < 1.9 < expected[1]
    assert found.std(axis=0) == pytest.approx(expected, rel=0.1)
    assert abs(found.mean(axis=0)).max() < 0.3


@pytest.mark.parametrize("scores", [[[0.5, 60.0], [90.0, 10.0]], [[1.0], [99.0]]])
def test_no_bleu_differs_by_more_than_there_is(scores, sweep):
    seeds = len(scores[0])
    for heads, row in zip((1, 4), scores, strict=True):
        for seed, bleu in enumerate(row, 1):
            edit(sweep / job(heads, seed) / "metrics.json", test__bleu=bleu, test__chrf=bleu)
    for path in sweep.glob("*/*.ref.*"):
        path.unlink()
    study = study_of(sweep)
    for measure in measures(study):
        if "BLEU" in measure.name or "chrF" in measure.name:
            for pair in measure.comparison.differences:
                assert -100 <= pair.interval[0] <= pair.interval[1] <= 100, (measure.name, seeds)


def test_rows_at_a_ceiling_do_not_count_as_unlike():
    """Seeds that agree to the last digit have no variance to take a logarithm of, whatever rounding makes of it."""
    rows = [[97.6, 99.2, 99.2], [99.2, 98.4, 98.4], [0.1 * 3, 0.1 * 3, 0.1 * 3], [100.0, 99.2, 100.0]]
    assert compare(rows).spread.alike
    assert compare([[0.1] * 3, [0.2] * 3]).spread.variances == (0.0, 0.0)


def test_moderation_finds_the_prior_that_variances_were_drawn_from():
    """Smyth 2004: variances from a scaled inverse chi-square, each seen on four degrees of freedom."""
    draw = np.random.default_rng(0)
    prior_df, scale, own = 6.0, 2.0, 4
    variances = prior_df * scale / draw.chisquare(prior_df, 4000)
    scores = draw.normal(size=(4000, own + 1)) * np.sqrt(variances)[:, None]
    found = moderated(scores.tolist(), [0.0] * 4000)
    seen = scores.var(axis=1, ddof=1)
    expected = np.maximum((prior_df * scale + own * seen) / (prior_df + own), seen)
    assert np.median(np.array(found.variances) / expected) == pytest.approx(1, abs=0.05)
    assert not found.alike


def test_seeds_that_agree_by_luck_are_no_better_known_than_sentences_allow():
    """The spread of runs holds the noise of sentences, so it cannot truly be smaller."""
    drawn = np.random.default_rng(0).normal(size=(4000, 4))
    sampling = interaction(0.5 * drawn, [0, 0, 1, 1], 1000)
    lucky = compare([[36.0, 36.001], [36.5, 36.501]], sampling)
    assert min(lucky.spread.variances) == pytest.approx(sampling.noise) == pytest.approx(0.25, rel=0.1)
    assert not any(pair.differs for pair in lucky.differences)
    assert compare([[36.0, 36.001], [36.5, 36.501]]).differences[0].differs


def test_equal_is_two_one_sided_tests():
    first, second = [0.10, 0.12, 0.11, 0.13], [0.11, 0.13, 0.12, 0.125]
    (pair,) = compare([first, second]).differences
    for within in (0.005, 0.02, 0.03, 0.08):
        below = stats.ttest_ind(np.array(first) - within, second, alternative="less").pvalue
        above = stats.ttest_ind(np.array(first) + within, second, alternative="greater").pvalue
        expected = max(below, above)
        assert pair.equal(within) == (expected < 0.05)
        if within > abs(pair.value):
            assert pair.p_equal(within) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("truth", [20.0, 36.0, 60.0])
def test_a_simulated_run_has_the_bleu_that_was_asked_for(truth):
    world = world_of(sentences=40_000, seed_deviation=0.0)
    counts = world.draw(np.array([truth]), 1, np.random.default_rng(1))
    assert counts.shape == (1, 40_000, bootstrap.COUNTS)
    assert bleu_of(counts.sum(axis=1))[0] == pytest.approx(truth, abs=0.5)


# Worlds in which one part of the variance is nearly all there is, so that an analysis that forgets it fails.
WORLDS = {
    "seeds": world_of(sentences=150, seed_deviation=3.0, interaction=0.0),
    "losses": world_of(sentences=None),
    "losses of unlike rows": world_of(sentences=None, deviations=(1, 1, 3, 30)),
    "sentences": world_of(sentences=150, seed_deviation=0.0, interaction=1.2),
}


@pytest.mark.medium
@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_few_false_alarms_and_honest_intervals(world):
    truth = np.full(4, world.bleu)
    outcomes = list(simulate(world, truth, seeds=3, studies=60, draws=150, seed=1))
    assert sum(outcome.alarm for outcome in outcomes) <= 9  # of 60; 5 % are 3
    assert np.mean([outcome.covered for outcome in outcomes]) >= 0.93


@pytest.mark.medium
def test_what_differs_by_the_margin_is_rarely_called_equal():
    world = world_of(sentences=None)
    truth = world.bleu + np.array([0.0, 4.0, 0.0, 4.0]) * world.seed_deviation
    outcomes = list(simulate(world, truth, seeds=5, studies=200, draws=0, seed=1, margin=4 * world.seed_deviation))
    assert sum(outcome.false_equal for outcome in outcomes) <= 17  # of 200; 5 % are 10
    assert np.mean([outcome.equal for outcome in outcomes]) > 0.6


@pytest.mark.medium
def test_a_planted_difference_is_found():
    world = world_of(sentences=400, seed_deviation=0.4)
    truth = np.array([36.0, 36.0, 36.0, 38.5])
    outcomes = list(simulate(world, truth, seeds=4, studies=30, draws=150, seed=1))
    assert np.mean([outcome.found for outcome in outcomes]) > 0.8
    assert sum(outcome.alarm for outcome in outcomes) <= 6


def row_of(trees) -> Row:
    """A row of runs that were tested on phenomena, and nothing else."""
    metrics = [{"test": {"contrastive": tree}} for tree in trees]
    return Row("", tuple(RunResult("", Path(), {}, each, pd.DataFrame(), {}, {}) for each in metrics))


def results(draw, rows, seeds, right):
    """Rows of runs whose chances are alike but for the seed."""

    def tested(chance, spread):
        won = draw.binomial(PAIRS, min(max(chance + spread * draw.standard_normal(), 0), 1))
        return {"hard": {"accuracy": 100 * won / PAIRS, "pairs": PAIRS}}

    def run():
        return {name: tested(*chances) for name, chances in right.items()}

    return [row_of([run() for _ in range(seeds)]) for _ in range(rows)]


@pytest.mark.medium
def test_phenomena_near_their_ceiling_raise_no_alarm():
    draw = np.random.default_rng(0)
    right = {"order": (0.998, 0.0), "case": (0.99, 0.0), "agreement": (0.85, 0.08), "pronoun": (0.9, 0.03)}
    studies = 150
    alarms = 0
    for _ in range(studies):
        cells = contrastive_cells(results(draw, 4, 3, right))
        alarms += any(pair.differs for cell in cells for pair in cell.comparison.differences)
    assert alarms <= 0.1 * studies


@pytest.mark.medium
def test_a_phenomenon_that_one_row_fails_is_found():
    draw = np.random.default_rng(0)
    good, bad = {"order": (0.99, 0.0), "pronoun": (0.95, 0.0)}, {"order": (0.99, 0.0), "pronoun": (0.6, 0.02)}
    rows = [*results(draw, 2, 3, good), *results(draw, 1, 3, bad)]
    cells = {cell.phenomenon: cell for cell in contrastive_cells(rows)}
    differing = {"order": [], "pronoun": [(0, 2), (1, 2)], "mean of all": [(0, 2), (1, 2)]}
    for name, cell in cells.items():
        assert [(p.first, p.second) for p in cell.comparison.differences if p.differs] == differing.pop(name)
    assert not differing


@pytest.mark.parametrize(("of", "n"), [(0, 20), (3, 20), (20, 20), (50, 1000)])
def test_shares_of_studies_have_the_interval_of_wilson(of, n):
    low, high = stats.binomtest(of, n).proportion_ci(method="wilson")
    assert percent([1.0] * of + [0.0] * (n - of)) == f"{100 * of / n:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def power_table(*words):
    """scripts/power.py, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["power.py", *words])
        power.main()


@pytest.mark.medium
def test_power_prints_a_table(capsys):
    words = "--seeds 2 3 --rows 2 --studies 4 --resamples 20 --sentences 50 --effect 20"
    power_table(*words.split())
    first, _, _, _, *rows = capsys.readouterr().out.splitlines()
    assert first.startswith("2 rows, 50 sentences, run-to-run deviation 0.4, effect 8, margin 1.6; 4 studies of each")
    assert [row.split()[0] for row in rows] == ["2", "3"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--seeds 1", "--seeds, --rows and --resamples must be 2 or more"),
        ("--deviations 1 3", "--seed_deviation and --margin must be more than 0, --deviations one for each row"),
        ("--noise -1", "noise=-1.0: must be 0 or more"),
    ],
)
def test_a_plan_that_cannot_be_is_one_line(words, message, capsys):
    with pytest.raises(SystemExit):
        power_table(*words.split())
    assert f"error: {message}" in capsys.readouterr().err


def test_a_phenomenon_of_a_file_is_marked_where_the_floor_is_above_three_quarters():
    floors = {"case": (74.0, 80.0), "order": (74.0, 75.0)}  # of two runs
    rows = [row_of([{name: {"mine": {"accuracy": 90.0, "floor": floor[run], "pairs": PAIRS}}
                      for name, floor in floors.items()} for run in (0, 1)])]  # fmt: skip
    assert [cell.phenomenon for cell in contrastive_cells(rows)] == ["case (target decides)", "order", "mean of all"]
