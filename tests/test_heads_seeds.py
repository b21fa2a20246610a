"""Figures over seeds: means, shares of runs and their tests; shuffled heads are matched again, random ones are not; the
table and the page of a sweep of planted runs, some of which lack parts."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import planted
import pytest
from built import BOUNDS
from planted_parts import cut, results, twinned
from scipy.stats import ttest_1samp
from test_heads_development import planted as trained
from test_heads_gold import ablation

from headcount.errors import InputError
from headcount.heads import replication, seeds
from headcount.heads.links import gold
from headcount.heads.page import study_page
from headcount.heads.replication import assigned, half, match, same_pairs
from headcount.heads.results import Results, Row, Study
from headcount.heads.roles import roles
from headcount.heads.seeds import matched, over_runs, seed_mean, seed_share, seed_table
from headcount.heads.twin_shares import largest_share

T4 = 2.7764  # the quantile of t with 4 degrees of freedom
LAYERS, HEADS = ("encoder1", "cross1"), 4
NAMES = np.array([f"{layer}.{head}" for layer in LAYERS for head in range(1, HEADS + 1)])
PHENOMENA = ("case", "negation", "order")


def study(**rows) -> Study:
    return Study(Path("runs/sweep"), "heads", rows)


def table_of(**rows) -> pd.DataFrame:
    """The table of a sweep by head, endpoint and column."""
    table, flags = seed_table(study(**rows), debug=True)
    assert not flags
    return table.set_index(["head", "endpoint", "column"]).sort_index()


def run(seed, costs, noise=0.05, pairs=20):
    """Arrays of `ablation` of a run whose heads cost `costs` [head, phenomenon] of a margin of 4 nats."""
    random = np.random.default_rng(seed)
    phenomenon = np.array(PHENOMENA * pairs)
    harm = costs[:, [PHENOMENA.index(name) for name in phenomenon]]
    right = 4 - np.concatenate([np.zeros((1, len(phenomenon))), harm])
    right += noise * random.standard_normal(right.shape)
    return {
        "zero.reference": -1 - 0.1 * random.random(right.shape),
        "zero.lengths": np.ones(len(phenomenon), dtype=int),
        "zero.right": right,
        "zero.wrong": np.zeros(right.shape),
        "row": np.arange(len(phenomenon)),
        "phenomenon": phenomenon,
        "grade": np.array(["easy"] * len(phenomenon)),
        "head": NAMES,
    }


def permuted(seed):
    """Order and case share a head of the cross-attention, negation has one of the encoder; their numbers vary."""
    random = np.random.default_rng(seed)
    costs = np.zeros((2, HEADS, 3))
    costs[1, 0, [0, 2]] = costs[0, 0, 1] = 3
    return np.concatenate([layer[random.permutation(HEADS)] for layer in costs])


def ablated(*arrays) -> list[Results]:
    return [results(ablation=each) for each in arrays]


def test_a_mean_over_seeds_has_a_t_interval_and_few_or_equal_seeds_none():
    found = seed_mean([1, 2, 3, 4, 5])
    assert (found.runs, found.mean) == (5, 3)
    assert (found.low, found.high) == pytest.approx((3 - T4 * 0.5**0.5, 3 + T4 * 0.5**0.5), abs=1e-3)
    assert found.p == pytest.approx(ttest_1samp([1, 2, 3, 4, 5], 0).pvalue)
    assert seed_mean([1, np.nan, 3])[:2] == (2, 2)
    assert seed_mean([0.9, 0.5, 1.0], 0, 1).high == 1
    for values in ([2.0], [1.0, 3.0], [2.0] * 5, [2.0, 2.0 + 1e-12, 2.0 - 1e-12]):
        runs, mean, low, high, p = seed_mean(values)
        assert (runs, mean, p) == (len(values), pytest.approx(2), 1)
        assert np.isnan([low, high]).all()
    assert (seed_mean([np.nan]).runs, np.isnan(seed_mean([]).mean)) == (0, True)
    drawn = np.random.default_rng(0).normal(7, 3, (400, 5))
    held = [found.low < 7 < found.high for found in map(seed_mean, drawn)]
    assert np.mean(held) == pytest.approx(0.95, abs=0.03)
    assert seed_share(4, 5) == pytest.approx((0.8, 0.2836, 0.9949), abs=1e-3)  # Clopper and Pearson
    assert np.isnan(seed_share(1, 1)[1:]).all()


@pytest.mark.medium
@pytest.mark.parametrize("deep", [0.0, 1000.0])
def test_few_pages_without_effects_have_a_deep_cell(monkeypatch, deep):
    """Four rows of five seeds: 192 layers a page, of which 5 a page are told from 0 by an interval for each alone."""
    random, pages = np.random.default_rng(1), []

    def layers(run, error):
        shares = random.normal(0, 1, 48)
        shares[0] += deep
        return (Row(f"cross{n // 8 + 1}", "twins.layer", "abcdefgh"[n % 8], share) for n, share in enumerate(shares))

    monkeypatch.setattr(seeds, "FIGURES", {layers: ("twins",)})
    runs = [results(twins={})] * 5
    for _ in range(40):
        table, _ = seed_table(study(**{f"r{heads}": runs for heads in "1248"}), debug=True)
        assert len(table) == 192
        pages.append(bool(table["sure"].any()))
    assert np.mean(pages) == 1 if deep else np.mean(pages) <= 0.07


def test_figures_of_runs_are_grouped_by_row():
    """Curves: random orders are averaged within a run. A figure is the mean over the runs that have it."""

    def figures(run, error):
        yield Row("", "number", "a", run, 0, 2, unit="heads")
        if run > 1:
            yield Row("cross1", "number", "b", run, unit="heads")
        yield Row("", "found", "c", run > 1, unit=seeds.COUNT)

    found = {(row.head, row.column): row for _, row in over_runs(figures, {"4": [1, 2, 3], "2": [5]}, 0.05)}
    assert (found["4", "a"].estimate, found["4", "a"].runs, found["4", "a"].high) == (2, 3, 2)
    assert (found["4:cross1", "b"].estimate, found["4:cross1", "b"].runs, found["2", "a"].runs) == (2.5, 2, 1)
    assert (found["4", "c"].estimate, found["4", "c"].runs) == (2 / 3, 3)
    table = table_of(**{"4": [results(cutting=cut())] * 2})
    greedy, random = (table.loc[("4:2 left", f"cutting.{order}", "loss")] for order in ("greedy", "random"))
    assert (greedy["estimate"], random["estimate"]) == pytest.approx((0.26, 0.51), abs=0.01)
    assert table.loc[("4", "cut.greedy", "bleu"), "estimate"] == 2


def test_steps_are_logarithms_within_the_training_and_their_order_is_tested():
    alone = table_of(**{"4": [results(training=trained(True, seed=seed)) for seed in range(5)]})
    later = alone.loc[("4", "training.later", "order")]
    assert (later["estimate"] < 0, later["sure"]) == (True, True)
    mixed = table_of(**{"4": [results(training=trained(early)) for early in (True, True, True, True, False)]})
    assert not mixed.loc[("4", "training.later", "order"), "sure"]
    step = mixed.loc[("4", "training.effect.log_half_rise", "order")]
    assert 0 <= step["low"] <= step["estimate"] <= step["high"] <= np.log1p(1000)
    two = table_of(**{"4": [results(training=trained(early)) for early in (True, False)]})
    assert np.isnan(two.loc[("4", "training.effect.log_half_rise", "order"), ["low", "high"]].astype(float)).all()


def alignment(right, valid=None):
    """Arrays of `gold` with two cross heads in each of two layers. right [head]: of 10 target words with 10 links."""
    counts = {"right": right, "valid.right": right if valid is None else valid}
    arrays = {name: np.zeros((4, 2, 4, 2), dtype=np.int16) for name in counts}
    for name, each in counts.items():
        arrays[name][:, 0, :, 0] = 2 * np.array(each)  # sure, and so possible, too
        arrays[name][:, 1] = 20  # by norm: never read
    fixed = {"fixed": np.full((4, 2), 6), "valid.fixed": np.tile([1, 4], (4, 1)), "rule": np.array(["diagonal", "+1"])}
    names = ["encoder1.1", *(f"cross{layer}.{head}" for layer in (1, 2) for head in (1, 2))]
    return arrays | fixed | {"targets": np.full(4, 10), "pairs": np.full(4, 10), "head": np.array(names)}


def test_the_first_head_of_the_last_layer_against_the_best():
    found = {row.column: row.estimate for row in seeds.alignment(results(gold=alignment([1, 2, 6, 9])), 0.05)}
    assert found["first"] == pytest.approx(0.4)
    assert (found["first less best"], found["baseline"], found["mean"]) == pytest.approx((0.3, 0.7, 0.55))
    # The best head is chosen on validation sentences.
    runs = [
        alignment([1, 2, 6, 9], [1, 8, 6, 5]),
        *(alignment([1, 2, right, 5]) for right in (9, 8)),
        alignment([9, 2, 4, 5]),
    ]
    table = table_of(**{"4": [results(gold=each) for each in runs]}).loc["4"]
    assert table.loc[("alignment.error", "first less best"), "estimate"] == pytest.approx((-0.4 + 0.5) / 4)
    assert table.loc[("alignment.first_is_best", "best"), "estimate"] == 0.5


def test_the_share_of_the_best_head_is_not_raised_by_its_choice():
    random = np.random.default_rng(4)
    labels, base = np.array(["order"] * 40), np.full(40, 4.0)
    noise = {"base": base, "twin": base - 1, "phenomenon": labels, "head": np.array([f"cross1.{n}" for n in range(50)])}
    shares = []
    for _ in range(40):
        patched = base + random.normal(0, 1, (50, 40))
        shares.append(largest_share({**noise, "patched": patched}, "order"))
        assert (base - patched).mean(axis=1).max() > 0.2  # as the largest of all seems
    assert abs(np.mean(shares)) < 3 * np.std(shares) / len(shares) ** 0.5
    planted_ = twinned()
    assert largest_share(planted_, "order") == pytest.approx(0.5, abs=0.01)
    assert np.isnan(largest_share({**planted_, "twin": planted_["base"] + 1}, "order"))


def test_where_the_cue_goes_over_seeds():
    parts = [twinned() for _ in range(3)]
    for share, each in zip((0.499, 0.5, 0.501), parts, strict=True):
        order = each["phenomenon"] == "order"
        for name, head in (("patched", 2), ("layers", 1)):
            each[name][head, order] = each["base"][order] - 8 * share + np.tile([0.05, -0.05], 30)
    runs = [results(twins=each) for each in parts]
    page = study_page(study(**{"2": [replace(each, name=str(n)) for n, each in enumerate(runs)]}), debug=True)
    table = page.table.set_index(["head", "endpoint", "column"])
    assert table.loc[("2:cross1", "twins.layer", "order"), "estimate"] == pytest.approx(0.5, abs=0.01)
    assert table.loc[("2:encoder1", "twins.layer", "order"), "estimate"] == pytest.approx(0, abs=0.01)
    assert table.loc[("2", "twins.largest", "order"), "sure"]
    title = "Largest share of one head of the way to the counterfactual, mean over seeds, %"
    assert page.findings == (f"{title}: heads 2, order: 50.0 [49.8, 50.2].",)
    equal = study_page(study(**{"2": runs[:1] * 3}), debug=True)
    assert equal.page.verdict == "No part of these results is shown to have an effect beyond chance."
    assert not equal.table["sure"].any()


@pytest.mark.medium
def test_effects_of_matched_heads_are_averaged_over_runs_and_specialists_are_counted(monkeypatch):
    monkeypatch.setattr(replication, "PERMUTATIONS", 20)
    runs = ablated(
        *(run(seed, permuted(seed) * (1 + (seed == 0) / 3)) for seed in range(5)), run(5, np.full((8, 3), 0.5))
    )
    monkeypatch.setattr(seeds, "FIGURES", {seeds.specialists: ("ablation",)})
    table = table_of(**{"4": runs[:5], "2": runs[5:]})
    means = table.xs("order", level="column").xs("matched.margin", level="endpoint")
    head = means["estimate"].idxmin()
    assert head in {f"4:cross1.{letter}" for letter in "abcd"}
    # 4 nats lost in one run, 3 in each of four.
    assert means.loc[head, "estimate"] == pytest.approx(-3.2, abs=0.05)
    assert means.loc[head, "low"] == pytest.approx(-3.2 - 2.776 * 0.2, abs=0.05)
    assert means["verdict"].value_counts().to_dict() == {"differs in 5": 1, "differs in 0": 7}
    assert means["sure"].sum() == 1
    assert means["estimate"].drop(head).abs().max() < 0.05
    found = table.xs("recurrence", level="endpoint")["estimate"]
    assert (found["4", "order"], found["4:cross1", "order"], found["4:encoder1", "negation"]) == (1, 1, 1)
    assert (found["2", "order"], ("2:cross1", "order") in found) == (0, False)
    assert "similarity" in table.loc[("4", "matched.similarity", "observed"), "unit"]


def test_a_head_is_selective_if_it_costs_accuracy_in_one_phenomenon_alone():
    """Costs of 5 of a margin of 4 make each pair wrong: of order and case by one head, of negation by another."""
    rows = seeds.selectivity(*ablated(run(0, permuted(0) * 5 / 3)), 0)
    found = {(row.endpoint, row.column): row.estimate for row in rows if not row.head}
    assert [found["selective", name] for name in PHENOMENA] == [0, 1, 0]
    assert [found["selective.there", name] for name in PHENOMENA] == [100, 100, 100]
    assert [found["selective.elsewhere", name] for name in PHENOMENA] == [100, 0, 100]
    arrays = run(0, permuted(0))
    none = {name: value[:0] if name in ("row", "phenomenon", "grade") else value for name, value in arrays.items()}
    none |= {f"zero.{name}": arrays[f"zero.{name}"][:, :0] for name in ("right", "wrong")}
    assert not list(seeds.selectivity(*ablated(none), 0))


@pytest.mark.medium
def test_random_profiles_do_not_match_better_than_shuffled_ones():
    random = np.random.default_rng(0)
    p = [match([run(seed, random.random((8, 3))) for seed in range(3)], seed).p for seed in range(20)]
    assert sum(each < 0.05 for each in p) <= 4
    assert 0.25 < np.mean(p) < 0.75


def test_heads_are_matched_in_their_places_only():
    first = np.eye(4)
    order, similarity = assigned(first, first[[1, 0, 3, 2]], np.array([0, 0, 1, 1]))
    assert (order.tolist(), similarity) == ([1, 0, 3, 2], 1)
    assert assigned(first, first[[2, 3, 0, 1]], np.array([0, 0, 1, 1]))[1] == 0
    assert assigned(first, first[[2, 3, 0, 1]], np.zeros(4))[1] == 1


@pytest.mark.medium
def test_half_of_the_pairs_of_each_phenomenon_matches_and_the_other_half_is_drawn():
    arrays = run(0, np.zeros((8, 3)), noise=0)
    arrays["zero.right"] += np.arange(60) / 100
    halves = [half(arrays, number) for number in (0, 1)]
    margins = [set(each["zero.right"][0].round(4).tolist()) for each in halves]
    assert len(margins[0] | margins[1]) == 60
    for each in halves:
        assert np.unique(each["phenomenon"], return_counts=True)[1].tolist() == [10, 10, 10]
        assert each["zero.lengths"].shape == each["row"].shape == (30,)  # each sentence has a pair here
        pairs = np.round(100 * (each["zero.right"][0] - 4)).astype(int)
        assert np.array_equal(each["zero.reference"][:, each["row"]], arrays["zero.reference"][:, pairs])
        assert np.array_equal(each["phenomenon"], arrays["phenomenon"][pairs])


@pytest.mark.medium
def test_runs_in_which_an_effect_differs_are_counted_on_the_half_that_did_not_match_it(monkeypatch):
    """An effect that is there on the matching half alone is none; with many runs each needs more resamples."""
    monkeypatch.setattr(replication, "PERMUTATIONS", 1)
    given = [run(seed, np.zeros((8, 3))) for seed in range(2)]
    own = half({**given[0], "row": np.arange(60)}, 0)
    first = np.isin(given[0]["zero.right"][0], own["zero.right"][0])
    assert first.sum() == 30
    for arrays in given:
        arrays["zero.right"][1, first] -= 3
    found = [row for _, row in matched({"4": ablated(*given)}, 0.05 / 3 / 30) if row.endpoint == "matched.margin"]
    assert {row.verdict for row in found} == {"differs in 0"}
    for arrays in given:
        arrays["zero.right"][1] -= 3
    found = [row for _, row in matched({"4": ablated(*given)}, 0.05 / 3 / 30) if row.endpoint == "matched.margin"]
    assert [row.verdict for row in found].count("differs in 2") == 3


def test_runs_measured_on_different_designs_are_refused():
    first, other = run(0, permuted(0)), run(1, permuted(1))
    other["phenomenon"] = other["phenomenon"][::-1]
    with pytest.raises(InputError, match="test sets of different design \\(phenomenon of their pairs differs\\)"):
        same_pairs([first, other])
    page = study_page(study(**{"4": ablated(first, other)}))
    assert "different design" in page.page.flags[0]


@pytest.mark.parametrize("own", [True, False])
def test_a_page_says_where_runs_have_sentences_of_their_own(own):
    runs = ablated(*({**run(seed, permuted(seed)), "sentences": np.array(str(seed * own))} for seed in (0, 1)))
    page = study_page(study(**{"4": runs}))
    assert ("Not all runs were measured on the same sentences." in page.page.flags) == own


@pytest.fixture(scope="module")
def page():
    """Two heads a layer with five seeds, one head with a single one. encoder1.2 looks from verb to subject in all runs;
    agreement suffers without it in four; the last run has no roles and no gold."""
    given = planted.analysis(planted.planted_model())
    seen = {"roles": roles(given, lambda done: None), "gold": gold(given, lambda done: None)}
    parts = [*({**seen, "ablation": ablation(["encoder1.2"])} for _ in range(4)), {"ablation": ablation()}]
    parts.append({**seen, "ablation": ablation()})
    runs = [Results(str(n), Path("runs/a"), ("en", "de"), each, BOUNDS) for n, each in enumerate(parts)]
    for each in runs:
        each.parts["ablation"]["grade"] = each.parts["ablation"]["phenomenon"]
    return study_page(study(**{"2": runs[:5], "1": runs[5:]}), debug=True)


@pytest.mark.medium
def test_roles_and_alignment_are_over_the_runs_that_have_them(page):
    table = page.table.set_index(["head", "endpoint", "column"])
    assert page.page.flags == ("Part roles was measured in 5 of 6 runs.", "Part gold was measured in 5 of 6 runs.")
    expected = {
        ("2", "subject"): (1, 4), ("1", "subject"): (0, 1), ("2:encoder1", "subject"): (1, 4), ("2", "sense"): (0, 4),
        ("1", "subject, follows"): (1, 1), ("2", "positional, encoder, previous"): (1, 4),
    }  # fmt: skip
    for (head, role), figures in expected.items():
        assert tuple(table.loc[(head, "role", role), ["estimate", "runs"]]) == figures
    assert table.loc[("2", "role", "subject"), "low"] == pytest.approx(0.3976, abs=1e-3)
    assert table.loc[("2", "alignment.first_is_best", "best"), "estimate"] == 0
    assert table.loc[("2", "alignment.error", "best"), "estimate"] == 0


@pytest.mark.medium
def test_sections_without_their_parts_are_left_out(page):
    assert [section.title for section in page.page.sections] == [
        "How often is there a head for a phenomenon?",
        "Mean ablation effect of matched heads",
        "Roles over seeds",
        "Which cross head aligns",
    ]
