"""Statistics of heads: error rates by simulation, verdicts on planted effects, tables from arrays of ablation."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from built import BOUNDS

from headcount.heads.statistics import effect_table
from headcount.statistics.max_t import Sample, compared, step_down

HEADS, PAIRS, PHENOMENA = 6, 30, 3
NAMES = [f"encoder1.{head}" for head in range(1, HEADS + 1)]


def columns_of(random, effect=0.0):
    """Loss on all sentences and a margin on a third each; heads share half of their variance, and tails are heavy."""
    sentences = PAIRS * PHENOMENA
    noise = random.standard_t(5, (HEADS, sentences)) + random.standard_t(5, sentences)
    where = [np.arange(sentences), *(np.arange(group, sentences, PHENOMENA) for group in range(PHENOMENA))]
    worse = [1, -1, -1, -1]
    return [
        Sample(f"column {number}", effect + noise[:, rows], rows, 0.0, sign, 0.5)
        for number, (rows, sign) in enumerate(zip(where, worse, strict=True))
    ]


@pytest.mark.medium
def test_family_wise_error_and_coverage_are_the_nominal_ones():
    random = np.random.default_rng(0)
    tables = [compared(NAMES, columns_of(random, 1.0), draws=300, seed=seed) for seed in range(200)]
    missed = np.mean([((table.low > 1) | (table.high < 1)).any() for table in tables])
    assert 0.01 < missed < 0.1  # 5 % but for a standard error of 1.5 %
    nothing = [compared(NAMES, columns_of(random), draws=300, seed=seed) for seed in range(200)]
    assert 0.01 < np.mean([(table.verdict == "differs").any() for table in nothing]) < 0.1


def real_columns(random, effects, pairs, distinct, centred=True):
    """Real changes of loss and margin without each of 24 heads, at resampled pairs of each of eight phenomena, of as
    many distinct ones; centred: on average no head changes anything. tests/effects.npz: test pairs of the default
    corpus, zero ablation of its default model."""
    phenomena = sorted(set(effects["phenomenon"]))
    kept = np.concatenate([np.flatnonzero(effects["phenomenon"] == name)[:distinct] for name in phenomena])
    columns = []
    for number, name in enumerate(["loss", *phenomena]):
        own = kept if name == "loss" else kept[effects["phenomenon"][kept] == name]
        values = effects["loss" if name == "loss" else "margin"][:, own].astype(np.float64)
        values -= values.mean(axis=1, keepdims=True) if centred else 0
        rows = np.arange(8 * pairs) if name == "loss" else np.arange(pairs) + (number - 1) * pairs
        drawn = values[:, random.integers(0, len(own), len(rows))]
        columns.append(Sample(name, drawn, rows, 0.0, 1 if name == "loss" else -1, 0.0))
    return columns


def real_tables(pairs, distinct, tables, centred=True):
    """The number of cells that differ in each of some tables of real effects."""
    random = np.random.default_rng(0)
    with np.load(Path(__file__).with_name("effects.npz")) as effects:
        effects = dict(effects)
    names = [str(head) for head in range(24)]
    found = (
        compared(names, real_columns(random, effects, pairs, distinct, centred), 600, seed=n) for n in range(tables)
    )
    return np.array([(table.verdict == "differs").sum() for table in found])


@pytest.mark.medium
def test_tables_of_real_effects_that_are_none_seldom_differ():
    assert np.mean(real_tables(60, 80, 40) > 0) < 0.2  # not divided by errors of their own: 0.28
    assert np.mean(real_tables(15, 250, 3, centred=False)) > 15  # and real ones are found, of 216


def test_identical_models_do_not_differ_and_are_non_inferior():
    rows = np.arange(PAIRS)
    rounding = 1e-6 + 1e-7 * np.random.default_rng(0).random((HEADS, PAIRS))
    table = compared(NAMES, [Sample("loss", rounding, rows, 1.0, 1, 0.01)])
    assert (table.verdict == "non-inferior").all()
    assert table.p.min() > 0.5
    assert table.harmless.all()


def test_step_down_is_the_largest_p_value_of_stronger_hypotheses():
    null = np.array([[3.0, 0.0, 1.0], [0.0, 2.5, 0.0], [0.0, 0.0, 2.0]])
    assert step_down(np.array([1.5, 4.0, 2.0]), null).tolist() == [0.75, 0.25, 0.75]
    assert step_down(np.array([1.5, 2.6, 2.0]), null).tolist() == [0.75, 0.5, 0.75]


def ablation_arrays(sentences=60):
    """Results in which head 1 costs 2 nats a sentence, head 2 costs order its margin, and head 3 changes nothing."""
    random = np.random.default_rng(1)
    lengths = random.integers(3, 9, sentences)
    reference = -random.random((1, lengths.sum())).repeat(4, axis=0)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    reference[1, starts] -= 2 + 0.1 * random.standard_normal(sentences)
    row = np.arange(0, sentences, 2)
    phenomenon = np.array(["case", "order"] * (len(row) // 2))
    right = np.zeros((4, len(row)))
    wrong = np.full((4, len(row)), -3.0)
    wrong[2] = np.where(phenomenon == "order", 0.5, -3.0) + 0.1 * random.standard_normal(len(row))
    values = {"reference": reference, "lengths": lengths, "right": right, "wrong": wrong}
    arrays = {f"zero.{name}": value for name, value in values.items()}
    arrays |= {f"only.{name}": value[1:] if value.ndim > 1 else value for name, value in values.items()}
    return arrays | {"row": row, "phenomenon": phenomenon, "head": np.array(["cross1.1", "cross1.2", "cross1.3"])}


@pytest.mark.parametrize("kind", ["zero", "only"])
def test_a_table_finds_planted_effects(kind):
    table = effect_table(ablation_arrays(), kind, bounds=BOUNDS)
    assert (table.rows, table.columns) == (("cross1.1", "cross1.2", "cross1.3"), ("loss", "case", "order"))
    assert table.verdict.tolist() == [
        ["differs", "non-inferior", "non-inferior"],
        ["non-inferior", "non-inferior", "differs"],
        ["non-inferior", "non-inferior", "non-inferior"],
    ]
    assert table.estimate[0, 0] == pytest.approx(2, abs=0.1)
    assert table.estimate[1, 2] == pytest.approx(-3.5, abs=0.1)
    assert table.low[1, 2] < -3.5 < table.high[1, 2]
    assert (table.harmless[:, 0].tolist(), table.units.tolist()) == ([False, True, True], [60, 15, 15])
    assert table.whole[1:].tolist() == [3, 3]
    assert table.harm[1, 2] == -table.estimate[1, 2]


def test_accuracy_without_a_changed_pair_is_not_known_exactly():
    table = effect_table(ablation_arrays(), endpoint="accuracy", bounds=replace(BOUNDS, accuracy=5.0))
    assert table.estimate[:, 1:].tolist() == [[0, 0], [0, -100], [0, 0]]
    assert table.verdict[:, 2].tolist() == ["inconclusive", "differs", "inconclusive"]
    assert table.high[0, 2] > 10
