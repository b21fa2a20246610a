"""Figures over seeds: means, shares, bands, limits, order in time, correlations and alignment of planted runs, and the
sections of the page of a sweep, with runs that lack parts."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import planted
import pytest
from built import BOUNDS
from planted_parts import twinned
from scipy.stats import ttest_1samp
from test_heads_development import planted as trained
from test_heads_gold import HEADS, ablation

from headcount.heads.cutting_curves import Curve
from headcount.heads.development import CURVES, Emergence, emergence
from headcount.heads.gold import gold
from headcount.heads.importance import PROXIES, Guide
from headcount.heads.over_seeds import (
    aligned,
    alignments,
    appearances,
    bands,
    cuts,
    found_by,
    placed,
    rank_correlations,
    seed_count,
    seed_mean,
)
from headcount.heads.page import html, study_page
from headcount.heads.results import Results, Study
from headcount.heads.roles import roles
from headcount.heads.sections.over_seeds import twins
from headcount.heads.sections.over_seeds.summary import of_page, text_of
from headcount.heads.statistics import effect_table
from headcount.heads.twin_shares import Shares, largest_share
from headcount.report.markdown import markdown
from headcount.report.table import Table, interval

T4 = 2.7764  # the quantile of t with 4 degrees of freedom


def test_a_mean_over_seeds_has_a_t_interval_and_a_single_seed_none():
    found = seed_mean([1, 2, 3, 4, 5])
    assert (found.runs, found.mean, found.least, found.most) == (5, 3, 1, 5)
    assert (found.low, found.high) == pytest.approx((3 - T4 * 0.5**0.5, 3 + T4 * 0.5**0.5), abs=1e-3)
    assert (seed_mean([1, np.nan, 3]).runs, seed_mean([1, np.nan, 3]).mean) == (2, 2)
    assert seed_mean([0.9, 0.5, 1.0], 0, 1).high == 1
    for values in ([2.0], [1.0, 3.0], [2.0] * 5, [2.0, 2.0 + 1e-12, 2.0 - 1e-12]):
        few = seed_mean(values)
        assert (few.runs, few.mean, few.p(0)) == (len(values), pytest.approx(2), 1)
        assert np.isnan([few.low, few.high]).all()
        assert text_of(few, 1) == "2.0"
    assert found.p(0) == pytest.approx(ttest_1samp([1, 2, 3, 4, 5], 0).pvalue)
    assert (seed_mean([np.nan]).runs, np.isnan(seed_mean([]).mean)) == (0, True)


def test_the_cells_of_a_page_are_one_family():
    """Without any effect, few pages have a cell that is found; a large effect is."""
    random, pages = np.random.default_rng(0), []
    for _ in range(300):
        pages.append(bool(found_by(dict(enumerate(random.random(192))), 0.05)))
    assert 0.01 < np.mean(pages) <= 0.07
    assert found_by({"a": 0.001, "b": 0.02, "c": 0.03, "d": 0.9}, 0.05) == {"a"}
    assert found_by({"a": 0.001, "b": 0.016, "c": 0.03, "d": 0.9}, 0.05) == {"a", "b"}
    assert found_by({}, 0.05) == set()


def test_the_interval_covers_the_mean_of_all_seeds():
    drawn = np.random.default_rng(0).normal(7, 3, (400, 5))
    held = [found.low < 7 < found.high for found in map(seed_mean, drawn)]
    assert np.mean(held) == pytest.approx(0.95, abs=0.03)


def test_runs_with_a_head_are_counted_once_and_by_layer():
    found = placed("order", [["cross1.1", "cross1.4"], ["cross1.2", "cross2.1"], []])
    assert (found.count.found, found.count.runs, found.layers) == (2, 3, {"cross1": 2, "cross2": 1})
    # Clopper and Pearson for 4 of 5.
    count = seed_count([True] * 4 + [False])
    assert (count.low, count.high) == pytest.approx((0.2836, 0.9949), abs=1e-3)


def curve(name, loss, left=(0, 1, 2, 4)):
    bleu = np.array([10.0, 20])
    values = np.full(len(left), float(loss))
    return Curve(name, np.array(left), values, np.zeros(0), np.array([2, 4]), bleu + loss)


def test_bands_are_over_seeds_and_random_orders_are_averaged_within_a_run():
    runs = [[curve("greedy", n), curve("random", n), curve("random", n + 2, (0, 2, 4))] for n in (1, 2, 3)]
    greedy, random = bands(runs, "loss")
    assert (greedy.order, greedy.runs, greedy.left.tolist()) == ("greedy", 3, [0, 1, 2, 4])
    assert greedy.mean == pytest.approx([2] * 4)
    assert greedy.high - greedy.mean == pytest.approx([4.3027 / 3**0.5] * 4, abs=1e-3)
    assert random.mean == pytest.approx([3, 2, 3, 3])
    assert bands(runs, "bleu")[0].mean.tolist() == [12, 22]
    assert np.isnan(bands(runs[:1], "loss")[0].low).all()
    other = [curve("greedy", 5, (0, 2)), curve("gradient", 5)]
    assert [(band.order, band.left.tolist()) for band in bands([*runs, other], "loss")] == [("greedy", [0, 2])]


def test_heads_that_can_go():
    found = cuts([{"greedy": cut, "gradient": 0} for cut in (0, 0, 1, 3)] + [{"greedy": 0}], most=3)
    assert list(found) == ["greedy"]
    assert (found["greedy"].runs, found["greedy"].low, found["greedy"].mean) == (5, 0, 0.8)
    most = cuts([{"greedy": cut} for cut in (3, 3, 2, 0, 3)], most=3)["greedy"]
    assert (most.high, most.mean) == (3, 2.2)


def test_seeds_that_agree_on_what_appears_first():
    runs = [emergence(trained(early), draws=100) for early in (True, True, True, True, False)]
    (found,) = appearances(runs)
    assert (found.phenomenon, found.runs) == ("order", 5)
    assert found.later.p(0) > 0.05
    assert found.verdicts == {"effect": 4, "margin": 1}
    steps = [run[0].half["effect"][0] for run in runs]
    assert found.steps["effect"].mean == pytest.approx(np.log1p(steps).mean())
    (alone,) = appearances([emergence(trained(True, seed=seed), draws=100) for seed in range(5)])
    assert alone.later.mean < 0
    assert alone.later.p(0) < 0.01


def test_steps_over_seeds_are_within_the_training_and_two_seeds_have_no_interval():
    curves = [dict.fromkeys(CURVES, (step, step, step)) for step in (1, 900, 2, 990)]
    nothing = np.zeros(2)
    runs = [[Emergence("order", "", np.array([0, 1000]), *[nothing] * 3, half, "undecided")] for half in curves]
    (found,) = appearances(runs)
    assert 0 <= found.steps["margin"].low <= found.steps["margin"].high <= np.log1p(1000)
    (two,) = appearances(runs[:2])
    assert two.steps["margin"].runs == 2
    assert np.isnan([two.steps["margin"].low, two.steps["margin"].high]).all()


def guide(rank):
    nothing = np.zeros((2, 2))
    ranks = np.array([[rank, np.nan], [-rank, 0.5], *[[np.nan, np.nan]] * (len(PROXIES) - 2)])
    return Guide(("cross1.1",), ("loss", "case"), nothing, {}, ranks, np.array([0.9, 0.5]))


def test_rank_correlations_are_averaged_over_seeds():
    found = rank_correlations([guide(rank) for rank in (0.1, 0.2, 0.3, 0.4, 0.5)])
    loss = found["loss_importance"]["loss"]
    assert loss.mean == pytest.approx(0.3)
    assert (loss.low, loss.high) == pytest.approx((0.3 - T4 * 0.005**0.5, 0.3 + T4 * 0.005**0.5), abs=1e-3)
    assert found["loss_importance"]["case"].runs == 0
    assert found["margin_importance"]["loss"].mean == pytest.approx(-0.3)
    assert (found["reliability"]["loss"].mean, found["reliability"]["case"].mean) == (0.9, 0.5)
    assert rank_correlations([guide(1), guide(0.2), guide(0.9)])["loss_importance"]["loss"].high == 1


def alignment(right, valid=None):
    """Arrays of `gold` with two cross heads in each of two layers. right [head]: of 10 target words with 10 links."""
    counts = {"right": right, "valid.right": right if valid is None else valid}
    arrays = {name: np.zeros((4, 2, 4, 2), dtype=np.int16) for name in counts}
    for name, each in counts.items():
        arrays[name][:, 0, :, 0] = each
        arrays[name][:, 1] = 10  # by norm: never read
    fixed = {"fixed": np.full((4, 2), 3), "valid.fixed": np.tile([1, 4], (4, 1))}
    names = ["encoder1.1", *(f"cross{layer}.{head}" for layer in (1, 2) for head in (1, 2))]
    return arrays | fixed | {"targets": np.full(4, 10), "pairs": np.full(4, 10), "head": np.array(names)}


def test_the_first_head_of_the_last_layer_against_the_best():
    run = aligned(alignment([1, 2, 6, 9]))
    assert (run.best, run.first) == ("cross2.2", "cross2.1")
    assert run.errors == pytest.approx({"cross1.1": 0.9, "cross1.2": 0.8, "cross2.1": 0.4, "cross2.2": 0.1})
    assert (run.excess, run.baseline) == (pytest.approx(0.3), pytest.approx(0.7))
    chosen = aligned(alignment([1, 2, 6, 9], [1, 8, 6, 5]))
    assert (chosen.best, chosen.excess) == ("cross1.2", pytest.approx(-0.4))
    others = [aligned(alignment([1, 2, right, 5])) for right in (9, 8, 7)]
    found = alignments([run, *others, aligned(alignment([9, 2, 4, 5]))])
    assert (found.best.found, found.best.runs, found.chance) == (3, 5, 0.25)
    assert found.layers == {"cross1": 1, "cross2": 4}
    assert found.excess.mean == pytest.approx((0.3 + 0.5) / 5)
    assert found.errors["best"].mean == pytest.approx((0.1 + 0.1 + 0.2 + 0.3 + 0.1) / 5)


def test_the_share_of_the_best_head_is_not_raised_by_its_choice():
    random = np.random.default_rng(4)
    labels, base = np.array(["order"] * 40), np.full(40, 4.0)
    noise = {"base": base, "twin": base - 1, "phenomenon": labels, "head": np.array([f"cross1.{n}" for n in range(50)])}
    shares = []
    for _ in range(40):
        patched = base + random.normal(0, 1, (50, 40))
        shares.append(largest_share({**noise, "patched": patched}, "order")[1])
        assert (base - patched).mean(axis=1).max() > 0.2  # as the largest of all seems
    assert abs(np.mean(shares)) < 3 * np.std(shares) / len(shares) ** 0.5
    planted_ = twinned()
    assert largest_share(planted_, "order") == ("cross1.1", pytest.approx(0.5, abs=0.01))
    turned = {**planted_, "twin": planted_["base"] + 1}
    assert np.isnan(largest_share(turned, "order")[1])


def test_where_the_cue_goes_over_seeds():
    parts = [twinned() for _ in range(3)]
    for share, each in zip((0.499, 0.5, 0.501), parts, strict=True):
        order = each["phenomenon"] == "order"
        for name, head in (("patched", 2), ("layers", 1)):
            each[name][head, order] = each["base"][order] - 8 * share + np.tile([0.05, -0.05], 30)
    runs = [Results(str(n), Path("runs/a"), ("en", "de"), {"twins": each}, BOUNDS) for n, each in enumerate(parts)]
    found = study_page(Study(Path("runs/sweep"), "heads", {"2": runs}))
    (table,) = tables(found, "Where the cue goes")
    assert dict(table.cells)["order"] == "50 [50, 50] %: cross1 3"
    equal = study_page(Study(Path("runs/sweep"), "heads", {"2": runs[:1] * 3}))
    assert dict(tables(equal, "Where the cue goes")[0].cells)["order"] == "50 %: cross1 3"
    assert not equal.findings
    rows = {(row.head, row.endpoint, row.column): row.estimate for row in found.rows}
    assert rows["2:cross1", "twins.layer", "order"] == pytest.approx(0.5, abs=0.01)
    assert rows["2:encoder1", "twins.layer", "order"] == pytest.approx(0, abs=0.01)
    assert found.findings == (
        "heads 2: patched, one head goes 50 [50, 50] % of the way to the twin in order, the most of all; in 3 "
        "of 3 runs it is in cross1.",
    )


@pytest.fixture(scope="module")
def attended():
    given = planted.analysis(planted.planted_model())
    return {"roles": roles(given, lambda done: None), "gold": gold(given, lambda done: None)}


def study(attended) -> Study:
    """Two heads a layer with five seeds, one head with a single one. encoder1.2 looks from verb to subject in all runs;
    agreement suffers without it in four; the last run has no roles and no gold."""
    parts = [{**attended, "ablation": ablation(["encoder1.2"])} for _ in range(4)]
    parts += [{"ablation": ablation()}, {**attended, "ablation": ablation()}]
    runs = [Results(str(n), Path("runs/a"), ("en", "de"), each, BOUNDS) for n, each in enumerate(parts)]
    for run in runs:
        run.parts["ablation"]["grade"] = run.parts["ablation"]["phenomenon"]
    return Study(Path("runs/sweep"), "heads", {"2": runs[:5], "1": runs[5:]})


@pytest.fixture(scope="module")
def page(attended):
    return study_page(study(attended))


def shares_of(random, deep=0.0):
    """Shares of six layers for eight phenomena, noise alone but for the first of each."""
    share = random.normal(0, 1, (6, 8))
    share[0, 0] += deep
    names = tuple(f"{kind}{layer}" for kind in ("encoder", "decoder", "cross") for layer in (1, 2))
    return Shares(names, tuple("abcdefgh"), share, share, share, np.ones(8), np.ones(8, dtype=int))


@pytest.mark.medium
@pytest.mark.parametrize("deep", [0.0, 1000.0])
def test_few_pages_without_effects_have_a_deep_cell(monkeypatch, deep):
    """Four rows of five seeds: 192 cells a page, of which 5 a page are above 0 by an interval for each cell alone."""
    random, pages = np.random.default_rng(1), []
    monkeypatch.setattr(twins, "twin_shares", lambda arrays, rows: shares_of(random, deep))
    monkeypatch.setattr(twins, "largest_share", lambda arrays, name: ("cross1.1", random.normal()))
    monkeypatch.setattr(twins, "drawn", lambda maps: drawn.extend(maps) or "")
    run = Results("a", Path("a"), ("en", "de"), {"twins": {"phenomenon": np.array(["a"])}}, BOUNDS)
    for _ in range(40):
        drawn = []
        found = twins.subject(Study(Path("a"), "heads", {row: [run] * 5 for row in "1248"}))
        sure = [cell for each in drawn for line in each.cells for cell in line if cell.sure]
        pages.append(bool(sure or found.findings))
    assert np.mean(pages) == 1 if deep else np.mean(pages) <= 0.07


def tables(page, title) -> list[Table]:
    (section,) = (section for section in page.page.sections if section.title == title)
    return [block for block in section.blocks if isinstance(block, Table)]


@pytest.mark.medium
def test_roles_are_counted_over_seeds_and_the_section_names_the_runs_it_holds_for(page):
    assert not page.page.flags
    claimed, positional = tables(page, "Roles over seeds")
    assert claimed.headers == ("role", "heads 2, 4 seeds", "heads 1, 1 seed")
    cells = {line[0]: line[1:] for line in claimed.cells}
    assert cells["subject"] == ("4 of 4 [0.40, 1.00]: encoder1 4", "0 of 1")
    assert cells["subject, follows"] == ("4 of 4 [0.40, 1.00]: encoder1 4", "1 of 1: encoder1 1")
    assert cells["sense"] == ("0 of 4 [0.00, 0.60]", "0 of 1")
    assert claimed.note == "Measured in 5 of 6 runs (heads 2: 4 of 5, heads 1: 1 of 1)."
    assert dict(line[:2] for line in positional.cells)["positional, encoder, previous"].startswith("4 of 4")
    assert "Roles that a head has, by the number of runs: heads 2: subject in 4 of 4; heads 1: none is shown." in (
        page.findings
    )


@pytest.mark.medium
def test_the_aligning_head_of_each_run_is_on_the_page(page):
    (table,) = tables(page, "Which cross head aligns")
    cells = {line[0]: line[1:] for line in table.cells}
    assert cells["runs whose best head is the first of the last layer"] == ("0 of 4 [0.00, 0.60]", "0 of 1")
    assert cells["best head"] == ("0.0", "0.0")  # equal runs have no interval


@pytest.mark.medium
def test_sections_without_their_parts_are_left_out(page):
    titles = [section.title for section in page.page.sections]
    assert titles == [
        "How often is there a head for a phenomenon?",
        "Mean knock-out over seeds",
        "Over how many heads is a function spread?",
        "Roles over seeds",
        "Which cross head aligns",
    ]


@pytest.mark.medium
def test_the_map_of_matched_heads_has_means_and_numbers_of_seeds(page):
    rows = {(row.head, row.endpoint, row.column): row for row in page.rows}
    assert len(rows) == len(page.rows)
    (heads,) = {
        head for (head, endpoint, column), row in rows.items()
        if (endpoint, column) == ("matched.margin", "agreement") and row.verdict == "differs in 4"
    }  # fmt: skip
    cell = rows[heads, "matched.margin", "agreement"]
    assert heads in {"2:encoder1.a", "2:encoder1.b"}
    assert cell.estimate == pytest.approx(-1.6, abs=0.05)
    assert (cell.runs, cell.low < -1.6 < cell.high) == (5, True)
    text = html(page)
    assert "margin without" not in text or 'role="grid"' not in text
    assert f'title="{heads[2:]} off, agreement: {cell.estimate:+.2f} nats' in text
    assert "heads 1 has no map, since it has 1 seed to match." in markdown(page.page)


@pytest.mark.medium
def test_the_spread_of_a_function_and_its_layers(page):
    (table,) = tables(page, "Over how many heads is a function spread?")
    assert table.headers == ("column", "effective number", "heads 2, 5 seeds", "heads 1, 1 seed")
    cells = {line[:2]: line[2:] for line in table.cells}
    assert list(cells)[:2] == [("loss", "heads"), ("loss", "share of all, %")]
    rows = {(row.head, row.endpoint, row.column): row for row in page.rows}
    number, share = (rows["2", endpoint, "agreement"] for endpoint in ("spread", "spread.share"))
    # The head that looks at subjects, in four of five runs.
    assert 1 <= number.estimate < 1.5
    assert share.estimate == pytest.approx(number.estimate / len(HEADS))
    assert cells["agreement", "heads"][0].startswith(f"{number.estimate:.1f}")
    layers = [rows[f"2:{layer}", "spread.layer", "agreement"].estimate for layer in ("encoder1", "decoder1", "cross1")]
    assert sum(layers) == pytest.approx(1)
    assert layers[0] > 0.8


def test_what_differs_within_a_run_is_tested_for_all_runs_of_a_page(monkeypatch):
    arrays = ablation()
    run = Results("a", Path("a"), ("en", "de"), {"ablation": arrays}, BOUNDS)
    table = effect_table(arrays)
    p = np.full(table.p.shape, 0.5)
    p[0] = 0.001, 0.004, 0.04
    found = replace(table, p=p, verdict=np.where(p <= 0.05, "differs", "undecided"))
    monkeypatch.setattr(Results, "effects", lambda *_: found)
    for runs, differ in ((1, 2), (10, 1), (1000, 0)):
        page = of_page(Study(Path("a"), "heads", {"2": [run] * runs}), run, "margin")
        assert (page.verdict == "differs").sum() == differ


def test_a_number_that_rounds_to_zero_has_no_minus_sign():
    assert interval((-0.004, -0.006)) == "[0.00, -0.01]"
    assert text_of(seed_mean([-0.4, -0.1, 0.3]), 0) == "0 [−1, 1]"
