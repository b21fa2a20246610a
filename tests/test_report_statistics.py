"""The statistics of a report, against other implementations and against studies whose truth is known."""

import itertools
import math

import numpy as np
import pytest
import sacrebleu
from scipy import stats
from sweeps import changed, sentences

from headcount.report.contrastive import contrastive_cells
from headcount.report.sentences import COUNTS, bleu_of, bootstrapped_bleu, resampled_bleu, resamples, sentence_counts
from headcount.report.simulation import World, analyse, simulate
from headcount.report.statistics import Plan, compare, critical, interaction

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
ROWS = [[36.1, 36.5, 36.2], [36.9, 36.4, 37.1, 36.8], [35.2, 36.0], [36.6, 37.0, 36.2]]


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
    monkeypatch.setattr("headcount.report.sentences.BLOCK", 100)
    counts = sentence_counts(CORPORA["translations"], REFERENCES, "13a")[None]
    found = bootstrapped_bleu(counts, 11)
    assert found.shape == (11, 1)
    assert len(np.unique(found)) == 11


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
    assert found.df == 8
    assert found.margin(2) == pytest.approx(stats.t.ppf(0.975, 8) * math.sqrt(pooled / 2))


@pytest.mark.parametrize("seeds", [2, 4])
def test_a_verdict_and_its_interval_agree(seeds):
    draw = np.random.default_rng(seeds)
    for effect in np.linspace(0, 3, 7):
        scores = draw.normal(size=(3, seeds)) + effect * np.arange(3)[:, None]
        for pair in compare(scores.tolist()).differences:
            low, high = pair.interval
            assert pair.differs == (not low <= 0 <= high) == (pair.p < 0.05)


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
    world = World(sentences=300)
    counts = world.draw(np.array([30.0, 36.0]), 1, np.random.default_rng(1))
    comparison = analyse(counts, 2, resamples(300, 500, 1))
    (pair,) = comparison.differences
    bootstrap = np.diff(resampled_bleu(counts, resamples(300, 500, 1)), axis=1).std(ddof=1)
    assert pair.deviation == pytest.approx(bootstrap)
    assert comparison.margin(0) is None
    assert comparison.seeds_needed(0.3) is None
    assert compare([[30.0], [36.0]]).differences == ()


def test_rows_that_vary_otherwise_are_seen():
    assert compare([[1.0, 1.1, 0.9, 1.05], [1.0, 9.0, -7.0, 4.0]]).unequal < 0.01
    assert compare(ROWS).unequal > 0.1
    assert compare([[1.0, 1.0], [1.0, 2.0]]).unequal == 0
    assert compare([[1.0], [1.0, 2.0]]).unequal is None


def test_more_seeds_and_fewer_rows_have_more_power():
    plan = Plan(variance=0.16, sentences=0.01, sentences_df=500, rows=4)
    needed = plan.seeds_needed(1.0)
    assert 2 < needed < 20
    assert plan.power(1.0, int(needed)) >= 0.8 > plan.power(1.0, int(needed) - 1)
    assert plan.detectable(int(needed)) <= 1.0 < plan.detectable(int(needed) - 1)
    assert Plan(0.16, 0.01, 500, 2).seeds_needed(1.0) < needed
    assert plan.seeds_needed(0.3) == math.inf  # the sentences alone leave a deviation of 0.1
    assert Plan(0.16, 0.0, 500, 4).seeds_needed(0.3) < 100


def test_planned_power_is_reached():
    """Against simulated normal scores, where power is that of the studentised range."""
    seeds, effect = 5, 1.1
    draw = np.random.default_rng(0)
    threshold = critical(4, 4 * (seeds - 1))
    hits = 0
    for _ in range(2000):
        scores = draw.normal(size=(4, seeds)) * 0.4 + np.array([[0.0], [0.0], [0.0], [effect]])
        deviation = math.sqrt(scores.var(axis=1, ddof=1).mean() / seeds)
        hits += (scores[3].mean() - scores[0].mean()) / deviation > threshold
    assert Plan(0.16, 0.0, 1e4, 4).power(effect, seeds) == pytest.approx(hits / 2000, abs=0.03)


@pytest.mark.parametrize("truth", [20.0, 36.0, 60.0])
def test_a_simulated_run_has_the_bleu_that_was_asked_for(truth):
    world = World(sentences=40_000, seed_deviation=0.0)
    counts = world.draw(np.array([truth]), 1, np.random.default_rng(1))
    assert counts.shape == (1, 40_000, COUNTS)
    assert bleu_of(counts.sum(axis=1))[0] == pytest.approx(truth, abs=0.5)


# Worlds in which one part of the variance is nearly all there is, so that an analysis that forgets it fails.
WORLDS = {
    "seeds": World(sentences=150, seed_deviation=3.0, interaction=0.0),
    "sentences": World(sentences=150, seed_deviation=0.0, interaction=1.2),
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_few_false_alarms_and_honest_intervals(world):
    truth = np.full(4, world.bleu)
    outcomes = list(simulate(world, truth, seeds=3, studies=60, draws=150, seed=1))
    assert sum(outcome.alarm for outcome in outcomes) <= 9  # of 60; 5 % are 3
    assert np.mean([outcome.covered for outcome in outcomes]) >= 0.93


def test_what_is_planted_is_found():
    world = World(sentences=400, seed_deviation=0.4)
    truth = np.array([36.0, 36.0, 36.0, 38.5])
    outcomes = list(simulate(world, truth, seeds=4, studies=30, draws=150, seed=1))
    assert np.mean([outcome.found for outcome in outcomes]) > 0.8
    assert sum(outcome.alarm for outcome in outcomes) <= 6


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_the_errors_of_whole_studies(seeds):
    """As docs/results/statistics.md has it; the bounds leave two standard errors of 500 studies to the 5 % meant."""
    world = World()
    same, planted = np.full(4, world.bleu), world.bleu + 2 * world.seed_deviation * np.array([0, 0, 0, 1.0])
    without = list(simulate(world, same, seeds, 500, 1000, seed=1))
    with_effect = list(simulate(world, planted, seeds, 500, 1000, seed=1))
    assert np.mean([outcome.alarm for outcome in without]) <= 0.07
    assert np.mean([outcome.covered for outcome in [*without, *with_effect]]) >= 0.93
    if seeds >= 5:
        assert np.mean([outcome.found > 0 for outcome in with_effect]) > 0.45  # more than half are meant


class Results:
    """A row of runs that were tested on phenomena, and nothing else."""

    def __init__(self, accuracies):
        self.runs = [Tree({"test": {"contrastive": tree}}) for tree in accuracies]

    def figures(self, path):
        return [run.figure(path) for run in self.runs]


class Tree:
    def __init__(self, tree):
        self._tree = tree

    def figure(self, path):
        node = self._tree
        for name in path.split("."):
            node = node[name]
        return node


def results(draw, rows, seeds, right):
    """Rows of runs whose chances are alike but for the seed."""
    found = []
    for _ in range(rows):
        runs = []
        for _ in range(seeds):
            tree = {}
            for name, (chance, spread) in right.items():
                won = draw.binomial(PAIRS, min(max(chance + spread * draw.standard_normal(), 0), 1))
                tree[name] = {"hard": {"accuracy": 100 * won / PAIRS, "pairs": PAIRS}}
            runs.append(tree)
        found.append(Results(runs))
    return found


def test_phenomena_near_their_ceiling_raise_no_alarm():
    draw = np.random.default_rng(0)
    right = {"order": (0.998, 0.0), "case": (0.99, 0.0), "agreement": (0.85, 0.08), "pronoun": (0.9, 0.03)}
    studies = 150
    alarms = 0
    for _ in range(studies):
        cells = contrastive_cells(results(draw, 4, 3, right))
        alarms += any(pair.differs for cell in cells for pair in cell.comparison.differences)
    assert alarms <= 0.1 * studies


def test_a_phenomenon_that_one_row_fails_is_found():
    draw = np.random.default_rng(0)
    good, bad = {"order": (0.99, 0.0), "pronoun": (0.95, 0.0)}, {"order": (0.99, 0.0), "pronoun": (0.6, 0.02)}
    rows = [*results(draw, 2, 3, good), *results(draw, 1, 3, bad)]
    cells = {cell.phenomenon: cell for cell in contrastive_cells(rows)}
    told = {
        name: [(p.first, p.second) for p in cell.comparison.differences if p.differs] for name, cell in cells.items()
    }
    assert told == {"order": [], "pronoun": [(0, 2), (1, 2)], "all": [(0, 2), (1, 2)]}
    assert cells["all"].pairs == 250


def test_pairs_come_in_the_order_of_rows():
    assert [(p.first, p.second) for p in compare(ROWS).differences] == list(itertools.combinations(range(4), 2))


def test_seeds_that_agree_at_the_ceiling_tell_less_than_they_seem_to():
    rows = [Results([{"order": {"easy": {"accuracy": value, "pairs": PAIRS}}}] * 3) for value in (100.0, 99.2, 98.4)]
    assert not any(pair.differs for cell in contrastive_cells(rows) for pair in cell.comparison.differences)
